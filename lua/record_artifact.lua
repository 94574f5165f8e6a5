-- record_artifact.lua: notes that a node can serve an artifact.
-- Guarantee: never more artifacts than the capacity of the settings; the least recently recorded or
--            looked-up one goes first, with all its providers.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2]: cluster_id
-- ARGV[3]: backend
-- ARGV[4]: key
-- ARGV[5]: node_id
-- Reply: {'recorded'} | {'unlisted'} | {'uninitialised'} | {'unknown', what, found}
-- Cost: O(log artifacts); at most 16 evictions of 256 providers each
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/settings"
-- @include "include/artifacts"
local EVICTIONS = 16

local _, refused = read_settings()
if refused then return refused end
local capacity = tonumber(redis.call('HGET', KEYS[1], 'artifact_store_capacity'))
local node_id = ARGV[5]
if not redis.call('ZSCORE', key('nodes'), node_id) then return { 'unlisted' } end
local scope = artifact_scope(ARGV[2], ARGV[3])
local artifact = scope .. '|' .. ARGV[4]

work_off_artifacts()
redis.call('HSET', artifact_key(artifact), node_id, redis.call('HGET', key('artifact_epochs'), node_id) or '0')
redis.call('SADD', node_key(node_id, 'artifacts'), artifact)
if redis.call('ZADD', key('artifacts'), redis.call('INCR', key('sequence')), artifact) == 1 then
  redis.call('HINCRBY', key('artifact_scopes'), scope, 1)
end
local beyond = math.min(redis.call('ZCARD', key('artifacts')) - capacity, EVICTIONS)
if beyond > 0 then
  for _, oldest in ipairs(redis.call('ZRANGE', key('artifacts'), 0, beyond - 1)) do drop_artifact(oldest) end
end
return { 'recorded' }
