-- lookup_artifact.lua: the ready nodes that can serve an artifact, a slice at a time.
-- Guarantee: readiness is judged on the server's clock and before the limit of the settings is applied.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2]: cluster_id
-- ARGV[3]: backend
-- ARGV[4]: key
-- ARGV[5]: exclude_node_id  '' excludes nobody
-- ARGV[6]: cursor  '0' starts; then what the slice before told
-- ARGV[7]: found_count  by the slices before
-- Reply: {'providers', cursor ('0': that was all), node_id, address, …} | {'uninitialised'} | {'unknown', what, found}
-- Cost: O(providers), about 500 in one slice
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/clock"
-- @include "include/settings"
-- @include "include/artifacts"
local SLICE = 500

local settings, refused = read_settings()
if refused then return refused end
local now = open_clock(ARGV[1])
local limit = tonumber(redis.call('HGET', KEYS[1], 'artifact_lookup_node_limit') or '0')
local cluster_id, backend = ARGV[2], ARGV[3]
local artifact = artifact_scope(cluster_id, backend) .. '|' .. ARGV[4]

if ARGV[6] == '0' then
  work_off_artifacts()
  if not redis.call('ZSCORE', key('artifacts'), artifact) then return { 'providers', '0' } end
  redis.call('ZADD', key('artifacts'), redis.call('INCR', key('sequence')), artifact)
end
local counts = provider_check()
local scanned = redis.call('HSCAN', artifact_key(artifact), ARGV[6], 'COUNT', SLICE)
local reply, found = { 'providers', scanned[1] }, tonumber(ARGV[7])
for index = 1, #scanned[2], 2 do
  local node_id, recorded = scanned[2][index], scanned[2][index + 1]
  if node_id ~= ARGV[5] and counts(node_id, recorded) then
    local peer, address = ready_peer(node_id, cluster_id, backend, now, settings.report_ttl_ms)
    if peer then
      reply[#reply + 1], reply[#reply + 2] = node_id, address
      found = found + 1
    end
  end
  if limit > 0 and found >= limit then
    reply[2] = '0'
    break
  end
end
return reply
