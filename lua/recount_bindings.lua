-- recount_bindings.lua: holds bindings against the rosters and assignments of nodes, in both directions.
-- Guarantee: each is judged at one moment, whatever else is going on; writes nothing.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2..]: pairs  node_id that lists or was assigned the sandbox ('': nobody said), sandbox_id, …; at most 200 pairs
-- Reply: {'recounted', subject, rule, detail, …} | {'uninitialised'} | {'unknown', what, found}
-- Cost: O(pairs log bindings)
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/settings"
-- @include "include/records"
-- @include "include/findings"

local _, refused = read_settings()
if refused then return refused end
local function assigned_to(node_id, sandbox_id)
  return redis.call('ZSCORE', node_key(node_id, 'assigned'), sandbox_id)
end

local function recount_bound(subject, sandbox_id, binding)
  local node_id = binding.node_id
  local assigned, due = assigned_to(node_id, sandbox_id), redis.call('ZSCORE', key('assigned'), sandbox_id)
  if is_listed(node_id, sandbox_id) then
    if assigned or due then finding(subject, 'assigned', 'is in the roster of node ' .. node_id .. ' and still awaited') end
    if (binding.deleted > 0) ~= (redis.call('ZSCORE', node_key(node_id, 'deleted'), sandbox_id) ~= false) then
      finding(subject, 'deleted',
        'was deleted by an event of node ' .. node_id .. ' in its record or in the list, not in both')
    end
  elseif tonumber(assigned or -1) ~= binding.sequence or tonumber(due or -1) ~= binding.recorded_at_ms then
    finding(subject, 'bound', 'is bound to node ' .. node_id .. ', which neither lists nor awaits it as recorded')
  end
end

for index = 2, #ARGV, 2 do
  local node_id, sandbox_id = ARGV[index], ARGV[index + 1]
  local subject, binding = 'sandbox ' .. sandbox_id, record_of(sandbox_id)
  if binding then
    recount_bound(subject, sandbox_id, binding)
  elseif redis.call('ZSCORE', key('assigned'), sandbox_id) then
    finding(subject, 'assigned', 'is awaited but not bound')
  end
  if node_id ~= '' and (not binding or binding.node_id ~= node_id) then
    local bound_to = binding and 'node ' .. binding.node_id or 'nothing'
    if is_listed(node_id, sandbox_id) then
      finding(subject, 'roster', 'is in the roster of node ' .. node_id .. ' but bound to ' .. bound_to)
    end
    -- A node goes on being asked for what its own reservation was confirmed with, whoever holds the binding.
    if assigned_to(node_id, sandbox_id) and not redis.call('HGET', node_key(node_id, 'claims'), sandbox_id) then
      finding(subject, 'assigned', 'is awaited by node ' .. node_id .. ' but bound to ' .. bound_to)
    end
  end
end
return findings
