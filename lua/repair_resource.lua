-- repair_resource.lua: makes one slice of the order of nodes by what is free of a resource anew, from their rows.
-- Guarantee: a node that has some of it keeps its place; whoever is missing comes back with repair_node.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2]: name  of the resource
-- ARGV[3..]: node_ids  those of the slice, at most 500
-- Reply: {'repaired'} | {'uninitialised'} | {'unknown', what, found}
-- Cost: O(nodes)
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/settings"
-- @include "include/rows"

local _, refused = read_settings()
if refused then return refused end
local name = ARGV[2]
for index = 3, #ARGV do
  local node_id = ARGV[index]
  local row = row_of(node_id)
  local free = row and resources.free_on(row, name)
  if free then
    redis.call('ZADD', key('resource:' .. name), integer(free), node_id)
  else
    redis.call('ZREM', key('resource:' .. name), node_id)
  end
end
return { 'repaired' }
