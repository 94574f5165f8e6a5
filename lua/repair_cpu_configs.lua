-- repair_cpu_configs.lua: counts the CPU templates of a cluster anew, and has their intersection computed again.
-- Guarantee: afterwards each observed node counts once.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2]: cluster_id
-- Reply: {'repaired'} | {'uninitialised'} | {'unknown', what, found}
-- Cost: O(nodes of the cluster)
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/settings"
-- @include "include/cpu_configs"

local _, refused = read_settings()
if refused then return refused end
local cluster_id = ARGV[2]
redis.call('DEL', cpu_config_counts_key(cluster_id))
for _, member in ipairs(redis.call('ZRANGE', cpu_configs_key(cluster_id), 0, -1)) do
  local digest = string.match(member, '^(%S+) ')
  redis.call('HINCRBY', cpu_config_counts_key(cluster_id), digest, 1)
end
touch_cpu_configs(cluster_id)
return { 'repaired' }
