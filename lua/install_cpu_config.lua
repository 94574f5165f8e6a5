-- install_cpu_config.lua: keeps the template computed for a cluster and says what to send to the node that asked.
-- Guarantee: a result of inputs that have changed since is not kept.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2]: node_id
-- ARGV[3]: cluster_id
-- ARGV[4]: carried  '1' when the node's report carried its own text
-- ARGV[5]: version  of the inputs, as report_cpu_config told it
-- ARGV[6]: text  the common template; '' when one of the inputs cannot be read
-- Reply: {'nothing'} | {'send', template} | {'changed'} | {'uninitialised'} | {'unknown', what, found}
-- Cost: O(1)
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/clock"
-- @include "include/settings"
-- @include "include/cpu_configs"

local _, refused = read_settings()
if refused then return refused end
local now = open_clock(ARGV[1])
local node_id, cluster_id, version, text = ARGV[2], ARGV[3], ARGV[5], ARGV[6]
local result = cpu_config_result_key(cluster_id)
local known = redis.call('HMGET', result, 'version', 'computed_version')
if known[1] ~= version then return { 'changed' } end
if known[2] ~= version then
  redis.call('HSET', result, 'computed_version', version, 'revision', version, 'recomputed_at_ms', integer(now),
    'text', text, 'failed', text == '' and '1' or '0')
end
return deliver_cpu_config(node_id, cluster_id, ARGV[4] == '1', now)
