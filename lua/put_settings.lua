-- put_settings.lua: agrees with the ledger on what all replicas must share.
-- Guarantee: one truth: the higher revision wins; equal revisions with different content never alternate
--            while another replica is alive.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2]: replica_id
-- ARGV[3]: revision
-- ARGV[4]: digest  of the content
-- ARGV[5]: epoch  to give a ledger that has none
-- ARGV[6]: rebuilding  '1': the ledger was lost or rolled back; what is missing may come back with the reports
-- ARGV[7]: lost_with  the server process since which something told is missing: nodes known wait until they
--          report, once for each such process; '' when nothing is known to be missing
-- ARGV[8]: rebuild_of  names this loss: nothing is decided until all who remember reservations have put them back;
--          '' when nothing can be lost
-- ARGV[9]: lease_ms  how long to wait for each of them
-- ARGV[10]: unlisted_ms  how long to wait for replicas that no list names yet
-- ARGV[11]: members_count  how many of the following are replicas to wait for, beside those the ledger knows
-- ARGV[12..]: content  members, then field, value, …
-- Reply: {'unknown', what, found}: a ledger of another format ('converting': being brought to this one), or settings
--        that stand against these and name what this version does not know; nothing was written
--        {'written'|'same'|'adopted'|'conflict', {settings}, rebuilding_ms}: for how long from now on what is
--        missing is told as not rebuilt
-- Cost: O(settings + replicas)
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/clock"
-- @include "include/settings"
-- @include "include/gate"
-- @include "include/members"
-- @include "include/tallies"

-- Says what the hash is to whoever looks into it. A value of more than 64 bytes also makes Redis keep the hash as a table:
-- every script asks for some twenty fields of it, and in a list each would be looked for from the first field on.
local ABOUT = 'Settings that all replicas of this scheduler share; whoever starts with a higher revision replaces them.'

local now = open_clock(ARGV[1])
local stored = as_table_of(KEYS[1], 'revision', 'digest', 'epoch', 'rebuilding_until_ms', 'unheard_since_ms', 'lost_with',
  'rebuild_of')
local content_starts = 12 + tonumber(ARGV[11])

local function outcome()
  if not stored.epoch then return 'written' end
  local revision, mine = tonumber(stored.revision), tonumber(ARGV[3])
  if mine > revision then return 'written' end
  if mine < revision then return 'adopted' end
  if stored.digest == ARGV[4] then return 'same' end
  return others_alive(ARGV[2], now) and 'conflict' or 'written'
end

-- Version 0.1 kept its settings under another key, and knew no format.
local function unopened_format()
  if redis.call('EXISTS', key('conversion')) == 1 then return 'converting' end
  local epoch = redis.pcall('HGET', key('settings'), 'epoch')
  return type(epoch) == 'string' and '1' or nil
end

local status = outcome()
local _, refused = read_settings()
local format = not stored.epoch and unopened_format()
if format then return { 'unknown', 'format', format } end
if stored.epoch and refused and (status ~= 'written' or refused[2] == 'format') then return refused end

if ARGV[8] ~= '' then
  -- Before there are settings to decide by.
  if ARGV[8] ~= stored.rebuild_of then redis.call('DEL', key('rebuild')) end
  redis.call('HSET', KEYS[1], 'rebuild_of', ARGV[8])
  wait_for({ unpack(ARGV, 12, content_starts - 1) }, now, tonumber(ARGV[9]))
  wait_for(redis.call('ZRANGEBYSCORE', key('replicas'), '(' .. integer(now), '+inf'), now, tonumber(ARGV[9]))
  wait_for({ UNLISTED }, now, tonumber(ARGV[10]))
end

-- An empty ledger is one whose sums are known.
if not stored.epoch and redis.call('ZCARD', key('nodes')) + redis.call('ZCARD', key('reservations')) == 0 then
  redis.call('DEL', key('tallies'))
  redis.call('HSET', key('tallies'), 'counted', tallies.WHOLE)
end
if status == 'written' then
  -- One write for all of it, and only then what is no longer said: nothing is missing in between.
  local values = { unpack(ARGV, content_starts) }
  local kept = {
    rebuilding_until_ms = true, unheard_since_ms = true, lost_with = true, refresh_after = true, rebuild_of = true,
    gated_until_ms = true, sums_counted_to = true,
  }
  local own = { 'format', FORMAT, 'revision', ARGV[3], 'digest', ARGV[4], 'epoch', stored.epoch or ARGV[5], 'about', ABOUT }
  for _, value in ipairs(own) do values[#values + 1] = value end
  if redis.call('ZCARD', key('nodes')) > 0 then values[#values + 1], values[#values + 2] = 'refresh_after', '' end
  for index = 1, #values, 2 do kept[values[index]] = true end
  redis.call('HSET', KEYS[1], unpack(values))
  for _, name in ipairs(redis.call('HKEYS', KEYS[1])) do
    if not kept[name] then redis.call('HDEL', KEYS[1], name) end
  end
end
if ARGV[6] == '1' then
  local binding_ttl_ms = tonumber(redis.call('HGET', KEYS[1], 'binding_ttl_ms'))
  redis.call('HSET', KEYS[1], 'rebuilding_until_ms', integer(now + binding_ttl_ms))
end
if ARGV[7] ~= '' and ARGV[7] ~= stored.lost_with then
  redis.call('HSET', KEYS[1], 'unheard_since_ms', integer(now), 'lost_with', ARGV[7], 'refresh_after', '')
end
close_clock(now)
local rebuilding_until_ms = tonumber(redis.call('HGET', KEYS[1], 'rebuilding_until_ms') or '') or 0
return { status, redis.call('HGETALL', KEYS[1]), integer(math.max(0, rebuilding_until_ms - now)) }
