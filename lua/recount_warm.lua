-- recount_warm.lua: holds what nodes were given last against the nodes that images and templates lead to.
-- Guarantee: each is judged at one moment, whatever else is going on; writes nothing.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2..]: pairs  node_id, image or template, …; at most 200 pairs
-- Reply: {'recounted', subject, rule, detail, …} | {'uninitialised'} | {'unknown', what, found}
-- Cost: O(pairs)
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/settings"
-- @include "include/findings"

local _, refused = read_settings()
if refused then return refused end

for index = 2, #ARGV, 2 do
  local node_id, origin = ARGV[index], ARGV[index + 1]
  local own = redis.call('ZSCORE', node_key(node_id, 'warm'), origin)
  local listed = redis.call('ZSCORE', key('warm:' .. origin), node_id)
  if own ~= listed then
    finding('warm ' .. origin, 'nodes',
      'was given to node ' .. node_id .. ' at ' .. shown(own) .. ', kept: ' .. shown(listed))
  elseif own and not redis.call('ZSCORE', key('nodes'), node_id) then
    finding('warm ' .. origin, 'nodes', 'leads to node ' .. node_id .. ', which is not listed')
  end
end
return findings
