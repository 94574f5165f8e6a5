-- forget_artifact.lua: a node can serve an artifact no more.
-- Guarantee: an entry that is not there is fine; an artifact without providers is dropped.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2]: cluster_id
-- ARGV[3]: backend
-- ARGV[4]: key
-- ARGV[5]: node_id
-- Reply: {'forgotten'} | {'uninitialised'} | {'unknown', what, found}
-- Cost: O(log artifacts)
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/settings"
-- @include "include/artifacts"

local _, refused = read_settings()
if refused then return refused end
work_off_artifacts()
local artifact = artifact_scope(ARGV[2], ARGV[3]) .. '|' .. ARGV[4]
drop_provider(artifact, ARGV[5])
redis.call('SREM', node_key(ARGV[5], 'artifacts'), artifact)
return { 'forgotten' }
