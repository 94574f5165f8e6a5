-- renew_replica.lua: registers a replica as live, and tells it what the ledger is.
-- Guarantee: a replica that stops telling is forgotten after its time.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2]: replica_id
-- ARGV[3]: ttl_ms  0: this replica leaves
-- Reply: {'alive', epoch, revision, digest, refreshing (1|0), skew_ms of ledger time, now_ms, replica_id, …}: who lives
--        {'uninitialised'} | {'unknown', what, found}
-- Cost: O(log replicas)
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/clock"
-- @include "include/settings"
-- @include "include/gate"

local REPLICAS_TOLD_MAX = 1000

local _, refused = read_settings()
if refused then return refused end
local now = open_clock(ARGV[1])
-- First what needs memory: a server without any refuses only the first write of a script.
close_clock(now)
redis.call('ZREMRANGEBYSCORE', key('replicas'), '-inf', integer(now))
if ARGV[3] == '0' then
  redis.call('ZREM', key('replicas'), ARGV[2])
  hear_from(ARGV[2], 0, now)
else
  redis.call('ZADD', key('replicas'), integer(now + tonumber(ARGV[3])), ARGV[2])
end
local settings = as_table_of(KEYS[1], 'epoch', 'revision', 'digest', 'refresh_after', 'gated_until_ms')
if settings.gated_until_ms and tonumber(settings.gated_until_ms) <= now then refresh_gate(now) end
return {
  'alive', settings.epoch, settings.revision, settings.digest, settings.refresh_after and '1' or '0',
  integer(clock_offset), integer(now), unpack(redis.call('ZRANGE', key('replicas'), 0, REPLICAS_TOLD_MAX - 1)),
}
