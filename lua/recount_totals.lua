-- recount_totals.lua: holds the sizes of the ledger's lists against each other.
-- Guarantee: one moment's truth, whatever else is going on; writes nothing.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2..]: clusters  ids of clusters whose CPU templates are kept
-- Reply: {'recounted', subject, rule, detail, …} | {'uninitialised'} | {'unknown', what, found}
-- Cost: O(distinct CPU templates + artifact scopes + distinct CPU capacities)
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/settings"
-- @include "include/rows"
-- @include "include/findings"
-- @include "include/cpu_configs"

local _, refused = read_settings()
if refused then return refused end

local function size(set) return redis.call('ZCARD', key(set)) end

local function equal(subject, found, expected)
  if found ~= expected then
    finding(subject, 'total', 'there are ' .. integer(found) .. ', expected ' .. integer(expected))
  end
end

local function sum_of(hash)
  local total, counts = 0, redis.call('HGETALL', hash)
  for index = 2, #counts, 2 do total = total + tonumber(counts[index]) end
  return total
end

equal('loads', redis.call('HLEN', key('loads')), size('nodes'))
local capacities = 0
for _, cpu_capacity in ipairs(redis.call('ZRANGE', key('capacities'), 0, -1)) do
  local nodes = size('capacity:' .. cpu_capacity)
  if nodes == 0 then finding('capacities', 'orphan', 'names ' .. cpu_capacity .. ' CPUs, which no node has') end
  capacities = capacities + nodes
end
-- After a conversion they are entered with the rows, slice by slice.
if redis.call('HEXISTS', KEYS[1], 'refresh_after') == 0 then equal('capacities of nodes', capacities, size('nodes')) end
equal('candidates, avoided, unhealthy, over_limit, lingering and waiting together',
  size('candidates') + size('avoided') + size('unhealthy') + size('over_limit') + size('lingering') + size('waiting'),
  size('nodes'))
equal('expiry and finished together', size('expiry') + size('finished'), size('reservations'))
equal('groups:recent', size('groups:recent'), redis.call('HLEN', key('groups')))
equal('artifact_scopes', sum_of(key('artifact_scopes')), size('artifacts'))

for index = 2, #ARGV do
  local cluster_id = ARGV[index]
  local subject = 'CPU templates of cluster ' .. cluster_id
  local nodes = redis.call('ZCARD', cpu_configs_key(cluster_id))
  equal(subject, sum_of(cpu_config_counts_key(cluster_id)), nodes)
  if nodes == 0 and redis.call('EXISTS', cpu_config_result_key(cluster_id)) == 1 then
    finding(subject, 'orphan', 'has a result although no node of it is observed')
  end
end
return findings
