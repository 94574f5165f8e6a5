-- recount_resource.lua: holds one slice of the order of nodes by what is free of a resource against their rows.
-- Guarantee: one moment's truth, whatever else is going on; writes nothing.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2]: name  of the resource
-- ARGV[3]: first  rank of the first node of the slice
-- Reply: {'recounted', subject, rule, detail, …} | {'uninitialised'} | {'unknown', what, found}
-- Cost: O(500 nodes)
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/settings"
-- @include "include/rows"
-- @include "include/findings"
local SLICE = 500

local _, refused = read_settings()
if refused then return refused end
local name, first = ARGV[2], tonumber(ARGV[3])
for _, node_id in ipairs(redis.call('ZRANGE', key('resource:' .. name), first, first + SLICE - 1)) do
  local row = row_of(node_id)
  if not row or not resources.free_on(row, name) then
    finding('resource ' .. name, 'stranger', 'leads to node ' .. node_id .. ', which has none of it')
  end
end
return findings
