-- repair_totals.lua: drops capacities that no node has, and installs the number of artifacts of each scope.
-- Guarantee: numbers that were counted before artifacts came or went are not installed.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2]: artifacts_count  how many were counted
-- ARGV[3..]: scopes  scope, how many artifacts it has, …
-- Reply: {'repaired'} | {'moved'} | {'uninitialised'} | {'unknown', what, found}
-- Cost: O(distinct CPU capacities + artifact scopes)
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/settings"

local _, refused = read_settings()
if refused then return refused end
for _, cpu_capacity in ipairs(redis.call('ZRANGE', key('capacities'), 0, -1)) do
  if redis.call('EXISTS', key('capacity:' .. cpu_capacity)) == 0 then redis.call('ZREM', key('capacities'), cpu_capacity) end
end
if redis.call('ZCARD', key('artifacts')) ~= tonumber(ARGV[2]) then return { 'moved' } end
local counted = {}
for index = 3, #ARGV, 2 do
  counted[ARGV[index]] = true
  redis.call('HSET', key('artifact_scopes'), ARGV[index], ARGV[index + 1])
end
for _, scope in ipairs(redis.call('HKEYS', key('artifact_scopes'))) do
  if not counted[scope] then redis.call('HDEL', key('artifact_scopes'), scope) end
end
return { 'repaired' }
