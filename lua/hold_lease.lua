-- hold_lease.lua: takes or renews a lease, for work that one replica does at a time.
-- Guarantee: never two holders on the server's clock; a holder that stops renewing loses it after its time.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2]: name
-- ARGV[3]: holder
-- ARGV[4]: ttl_ms  0: the holder lets go
-- Reply: {'held'} | {'taken', holder} | {'free'} | {'uninitialised'} | {'unknown', what, found}
-- Cost: O(1)
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/clock"
-- @include "include/settings"

local _, refused = read_settings()
if refused then return refused end
local now = open_clock(ARGV[1])
local lease, holder, ttl_ms = key('lease:' .. ARGV[2]), ARGV[3], tonumber(ARGV[4])
local known = redis.call('HMGET', lease, 'holder', 'until_ms')
local free = not known[1] or tonumber(known[2]) <= now
if not free and known[1] ~= holder then return { 'taken', known[1] } end
if ttl_ms == 0 then
  redis.call('DEL', lease)
  return { 'free' }
end
redis.call('HSET', lease, 'holder', holder, 'until_ms', integer(now + ttl_ms))
redis.call('PEXPIRE', lease, integer(10 * ttl_ms))
return { 'held' }
