-- repair_spread.lua: counts a spread key anew, from reservations and records of sandboxes.
-- Guarantee: changes only counts, and whether a reservation counts itself.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2]: spread_key
-- ARGV[3]: walked_to  sequence; the caller has read every reservation up to it
-- ARGV[4]: reservations_count  how many of the following ids are reservations
-- ARGV[5..]: ids  reservations, then sandboxes, that named the key
-- Reply: {'repaired'} | {'moved'}  so much was placed meanwhile that the caller must read again
--        {'uninitialised'} | {'unknown', what, found}
-- Cost: O(ids + reservations newer than walked_to, at most 2,000 of these)
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/settings"
-- @include "include/recount_spread"

local _, refused = read_settings()
if refused then return refused end
local spread_key = ARGV[2]
local counts, wrong = recounted_spread(spread_key)
if not counts then return { 'moved' } end
local name, total = key('spread:' .. spread_key), 0
redis.call('DEL', name)
for node_id, count in pairs(counts) do
  redis.call('HSET', name, node_id, integer(count))
  total = total + count
end
redis.call('HDEL', key('spreads'), spread_key)
if total > 0 then redis.call('HSET', key('spreads'), spread_key, integer(total)) end
for _, each in ipairs(wrong) do redis.call('HSET', reservation_key(each[1]), 'spread_counted', each[2] and '1' or '0') end
return { 'repaired' }
