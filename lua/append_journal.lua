-- append_journal.lua: notes what happened in one of the ledger's journals, which keep the last so many entries.
-- Guarantee: entries are numbered in the order in which they come; nothing is decided by them.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2]: journal  decisions | audit
-- ARGV[3]: dropped  how many entries the caller had to drop since its last call
-- ARGV[4..]: entries  age_ms, text, …
-- Reply: {'kept', how many entries the journal keeps; 0: it is off} | {'uninitialised'} | {'unknown', what, found}
-- Cost: O(entries log journal)
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/clock"
-- @include "include/settings"
local AUDIT_KEPT = 1000

local settings, refused = read_settings()
if refused then return refused end
local now, journal = open_clock(ARGV[1]), key(ARGV[2])
local keep = AUDIT_KEPT
if ARGV[2] == 'decisions' then keep = tonumber(redis.call('HGET', KEYS[1], 'decisions_keep')) end
if ARGV[3] ~= '0' then redis.call('HINCRBY', key('stats'), ARGV[2] .. '_dropped', ARGV[3]) end
if keep == 0 then
  redis.call('DEL', journal)
  return { 'kept', '0' }
end
local newest = redis.call('ZRANGE', journal, -1, -1, 'WITHSCORES')
local number = newest[2] and tonumber(newest[2]) or 0
for index = 4, #ARGV, 2 do
  number = number + 1
  local instant = integer(now - math.max(0, tonumber(ARGV[index])))
  redis.call('ZADD', journal, integer(number),
    integer(number) .. ' ' .. instant .. ' ' .. settings.strategy .. ' ' .. ARGV[index + 1])
end
redis.call('ZREMRANGEBYRANK', journal, 0, -keep - 1)
return { 'kept', integer(keep) }
