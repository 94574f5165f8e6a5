-- report_cpu_config.lua: notes a node's CPU template after its report and says what to send back.
-- Guarantee: only the node's newest report counts; a template once told is kept through unregister,
--            discovery flaps and restarts, and blocks nobody while its node is not observed.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2]: node_id
-- ARGV[3]: cluster_id
-- ARGV[4]: generation  of the report that carried it
-- ARGV[5]: digest  of the text, hexadecimal; '' when the report carried none
-- ARGV[6]: text  the template as the node wrote it; '' when the report carried none
-- Reply: {'nothing'} | {'send', template}
--        {'compute', version, node_id, …}  intersect the kept texts of these nodes, in this order, and install the result
--        {'uninitialised'} | {'unknown', what, found}
-- Cost: O(log nodes of the cluster); O(distinct templates) when a new one is to be computed
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/clock"
-- @include "include/settings"
-- @include "include/cpu_configs"

local _, refused = read_settings()
if refused then return refused end
local now = open_clock(ARGV[1])
local node_id, cluster_id, digest = ARGV[2], ARGV[3], ARGV[5]
local observed = redis.call('HMGET', node_key(node_id), 'last_seen_ms', 'generation', 'discovery')
if not observed[1] or observed[2] ~= ARGV[4] or observed[3] == 'removed' then return { 'nothing' } end

local kept = node_key(node_id, 'cpu_config')
local about = redis.call('HMGET', kept, 'listed', 'cluster_id', 'digest')
local carried = digest ~= ''
if not carried then digest = about[2] == cluster_id and about[3] or 'none' end

local known = about[1] == '1' and about[2] == cluster_id and about[3] == digest
if not known or not takes_part(node_id, cluster_id, digest) then
  -- Before the inputs change: a script that is stopped in between leaves nothing computed without them.
  outdate_cpu_configs(cluster_id)
  if about[1] == '1' then
    unlist_cpu_config(node_id, about[2], about[3])
    if about[2] ~= cluster_id then touch_cpu_configs(about[2]) end
  end
  if carried then redis.call('HSET', kept, 'text', ARGV[6]) end
  if digest == 'none' then redis.call('HDEL', kept, 'text') end
  redis.call('HSET', kept, 'listed', '1', 'cluster_id', cluster_id, 'digest', digest)
  redis.call('PERSIST', kept)
  list_cpu_config(node_id, cluster_id, digest)
end

local counts = cpu_config_counts_key(cluster_id)
if redis.call('HEXISTS', counts, 'none') == 1 then return { 'nothing' } end
local result = redis.call('HMGET', cpu_config_result_key(cluster_id), 'version', 'computed_version', 'recomputed_at_ms')
if result[1] == result[2] then return deliver_cpu_config(node_id, cluster_id, carried, now) end
if result[3] and redis.call('HLEN', counts) > MANY_TEMPLATES and now - tonumber(result[3]) < MANY_TEMPLATES_PAUSE_MS then
  return { 'nothing' }
end
local reply = { 'compute', result[1] }
for _, holder in ipairs(cpu_config_holders(cluster_id)) do reply[#reply + 1] = holder end
return reply
