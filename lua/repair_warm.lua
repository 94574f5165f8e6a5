-- repair_warm.lua: brings the nodes that images and templates lead to in line with what the nodes were given last.
-- Guarantee: a listed node keeps what its own list says; all else of these pairs goes.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2..]: pairs  node_id, image or template, …; at most 200 pairs
-- Reply: {'repaired'} | {'uninitialised'} | {'unknown', what, found}
-- Cost: O(pairs log nodes)
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/settings"

local _, refused = read_settings()
if refused then return refused end

for index = 2, #ARGV, 2 do
  local node_id, origin = ARGV[index], ARGV[index + 1]
  local own = redis.call('ZSCORE', node_key(node_id, 'warm'), origin)
  if own and redis.call('ZSCORE', key('nodes'), node_id) then
    redis.call('ZADD', key('warm:' .. origin), own, node_id)
  else
    redis.call('ZREM', key('warm:' .. origin), node_id)
    redis.call('ZREM', node_key(node_id, 'warm'), origin)
  end
end
return { 'repaired' }
