-- list_bindings.lua: the bindings a lookup would answer now, a slice at a time in no order.
-- Guarantee: writes nothing; a binding that stands throughout all slices is told at least once.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2]: cursor  '0' starts; then what the slice before told
-- Reply: {'bindings', cursor ('0': that was all), binding_ttl_ms, sandbox_id, node_id, endpoint, …} | {'uninitialised'}
-- Errors: none
-- Cost: O(1) per binding, about 500 in one slice
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/clock"
-- @include "include/bindings"
local SLICE = 500

local binding_ttl_ms = tonumber(redis.call('HGET', KEYS[1], 'binding_ttl_ms') or '')
if not binding_ttl_ms then return { 'uninitialised' } end
local now = open_clock(ARGV[1])
local scanned = redis.call('HSCAN', key('bindings'), ARGV[2], 'COUNT', SLICE)
local reply, nodes = { 'bindings', scanned[1], integer(binding_ttl_ms) }, {}
for index = 1, #scanned[2], 2 do
  local sandbox_id = scanned[2][index]
  local recorded_at_ms, node_id = string.match(scanned[2][index + 1], '^(%d+) (.*)$')
  nodes[node_id] = nodes[node_id] or as_table_of(node_key(node_id), 'endpoint', 'last_seen_ms', 'last_heard_ms')
  local node, binding = nodes[node_id], { node_id = node_id, recorded_at_ms = tonumber(recorded_at_ms) }
  local last_seen_ms = tonumber(node.last_seen_ms or node.last_heard_ms or '')
  if node.endpoint and valid_until(binding, sandbox_id, last_seen_ms, binding_ttl_ms) > now then
    reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = sandbox_id, node_id, node.endpoint
  end
end
return reply
