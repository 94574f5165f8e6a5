-- recount_artifacts.lua: holds artifacts against their providers, in both directions.
-- Guarantee: each is judged at one moment, whatever else is going on; what waits to be cleared away counts
--            for nothing. Writes nothing.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2..]: pairs  node_id that offers the artifact ('': nobody said), artifact, …; at most 200 pairs
-- Reply: {'recounted', subject, rule, detail, …} | {'uninitialised'} | {'unknown', what, found}
-- Cost: O(pairs × providers, of artifacts with at most 500)
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/settings"
-- @include "include/artifacts"
-- @include "include/findings"
local PROVIDERS_MOST = 500

local _, refused = read_settings()
if refused then return refused end
local waiting = redis.call('EXISTS', key('artifact_leftovers')) == 1

for index = 2, #ARGV, 2 do
  local node_id, artifact = ARGV[index], ARGV[index + 1]
  local subject, name = 'artifact ' .. artifact, artifact_key(artifact)
  local listed, providers = redis.call('ZSCORE', key('artifacts'), artifact), redis.call('HLEN', name)
  if listed and providers == 0 then finding(subject, 'providers', 'is listed but nobody provides it') end
  if providers > 0 and not listed then
    finding(subject, 'listing', 'has providers but is not listed, so nothing can evict it')
  end
  if node_id ~= '' and not waiting and redis.call('SISMEMBER', node_key(node_id, 'artifacts'), artifact) == 1
    and redis.call('HEXISTS', name, node_id) == 0 then
    finding(subject, 'providers', 'is offered by node ' .. node_id .. ', which is not among its providers')
  end
  if not waiting and providers <= PROVIDERS_MOST then
    for _, provider in ipairs(redis.call('HKEYS', name)) do
      if redis.call('SISMEMBER', node_key(provider, 'artifacts'), artifact) == 0 then
        finding(subject, 'providers', 'names provider ' .. provider .. ', which does not offer it')
      end
    end
  end
end
return findings
