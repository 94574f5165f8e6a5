-- recount_group.lua: holds what a group counts against the reservations charged to it.
-- Guarantee: one moment's truth, whatever else is going on; writes nothing.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2]: group_key
-- ARGV[3]: walked_to  sequence; the caller has read every reservation up to it
-- ARGV[4..]: reservation_ids  those among them that named the group
-- Reply: {'recounted', subject, rule, detail, …} | {'moved'}  so much was placed meanwhile that the caller must read again
--        {'uninitialised'} | {'unknown', what, found}
-- Cost: O(ids + reservations newer than walked_to, at most 2,000 of these)
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/clock"
-- @include "include/settings"
-- @include "include/groups"
-- @include "include/reservations"
-- @include "include/findings"
local NEWER_MAX = 2000

local _, refused = read_settings()
if refused then return refused end
local now, group_key = open_clock(ARGV[1]), ARGV[2]
local subject = 'group ' .. group_key
local group, recent = read_group(group_key), redis.call('ZSCORE', key('groups:recent'), group_key)
if not group then
  if recent then finding(subject, 'recency', 'is listed as recent but not open') end
  return findings
end
if not recent then finding(subject, 'recency', 'is open but not listed as recent, so nothing can evict it') end

local newer = redis.call('ZRANGEBYSCORE', key('reservations'), '(' .. ARGV[3], '+inf', 'LIMIT', 0, NEWER_MAX)
if #newer == NEWER_MAX then return { 'moved' } end
local charged = { count = 0, cpu = 0, memory_mb = 0 }

local function add(reservation_id)
  local found = as_table_of(reservation_key(reservation_id), 'group_key', 'group_sequence', 'group_charged',
    'group_cpu', 'group_memory_mb')
  if found.group_key == group_key and tonumber(found.group_sequence) == group.sequence and found.group_charged == '1' then
    charge_group(charged, charge_of(found), 1)
  end
end

for index = 4, #ARGV do add(ARGV[index]) end
for _, reservation_id in ipairs(newer) do add(reservation_id) end

-- A group older than reservations stay readable may count some that are gone by now.
local all_readable = now < group.opened_at_ms + RETENTION_MS
for _, part in ipairs({ 'count', 'cpu', 'memory_mb' }) do
  if group[part] < charged[part] or (all_readable and group[part] ~= charged[part]) then
    finding(subject, 'charge', part .. ' is ' .. integer(group[part]) .. ', its reservations were charged '
      .. integer(charged[part]))
  end
end
return findings
