-- repair_artifacts.lua: brings artifacts in line with their providers, and the offers of nodes with both.
-- Guarantee: takes no provider from an artifact whose node is listed; what nobody provides goes. Nothing is judged
--            while something waits to be cleared away.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2..]: pairs  node_id that offers the artifact ('': nobody said), artifact, …; at most 200 pairs
-- Reply: {'repaired'} | {'again'} | {'uninitialised'} | {'unknown', what, found}
-- Cost: O(pairs × providers, of artifacts with at most 500); one slice of what waits to be cleared away
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/settings"
-- @include "include/artifacts"
local PROVIDERS_MOST = 500

local _, refused = read_settings()
if refused then return refused end
if redis.call('EXISTS', key('artifact_leftovers')) == 1 then
  work_off_artifacts()
  return { 'again', 'artifacts' }
end

local function repair_providers(artifact)
  local name = artifact_key(artifact)
  if redis.call('HLEN', name) > PROVIDERS_MOST then return end
  for _, node_id in ipairs(redis.call('HKEYS', name)) do
    if redis.call('ZSCORE', key('nodes'), node_id) then
      redis.call('SADD', node_key(node_id, 'artifacts'), artifact)
    else
      redis.call('HDEL', name, node_id)
    end
  end
end

for index = 2, #ARGV, 2 do
  local node_id, artifact = ARGV[index], ARGV[index + 1]
  local name = artifact_key(artifact)
  repair_providers(artifact)
  if redis.call('EXISTS', name) == 0 then
    drop_artifact(artifact)
  elseif redis.call('ZADD', key('artifacts'), 'NX', redis.call('INCR', key('sequence')), artifact) == 1 then
    redis.call('HINCRBY', key('artifact_scopes'), scope_of(artifact), 1)
  end
  if node_id ~= '' and redis.call('HEXISTS', name, node_id) == 0 then
    redis.call('SREM', node_key(node_id, 'artifacts'), artifact)
  end
end
return { 'repaired' }
