-- list_bindings.lua: the bindings a lookup would answer now: those of named sandboxes, or all in slices.
-- Guarantee: writes nothing; a binding that stands throughout all slices is told at least once.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2]: cursor  '0' starts; then what the slice before told; '' asks for those named
-- ARGV[3..]: sandbox_ids  at most 500, when asked for by name
-- Reply: {'bindings', cursor ('0': that was all), binding_ttl_ms, sandbox_id, node_id, endpoint, left_ms, …}
--        {'uninitialised'} | {'unknown', what, found}
-- Cost: O(1) per binding, about 500 in one slice
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/clock"
-- @include "include/settings"
-- @include "include/validity"
local SLICE = 500

local settings, refused = read_settings()
if refused then return refused end
read_binding_settings(settings)
local binding_ttl_ms = settings.binding_ttl_ms
local now = open_clock(ARGV[1])

-- Sandbox ids and what is recorded of each, alternating; false where nothing is.
local function recorded()
  if ARGV[2] ~= '' then
    local scanned = redis.call('HSCAN', key('bindings'), ARGV[2], 'COUNT', SLICE)
    return scanned[1], scanned[2]
  end
  local found = {}
  for index, text in ipairs(redis.call('HMGET', key('bindings'), unpack(ARGV, 3))) do
    found[2 * index - 1], found[2 * index] = ARGV[index + 2], text
  end
  return '0', found
end

local cursor, found = recorded()
local reply, nodes = { 'bindings', cursor, integer(binding_ttl_ms) }, {}
for index = 1, #found, 2 do
  local sandbox_id, binding = found[index], found[index + 1] and parse_record(found[index + 1])
  local node = binding and nodes[binding.node_id]
  if binding and not node then
    node = as_table_of(node_key(binding.node_id), 'endpoint', 'last_seen_ms', 'last_heard_ms')
    nodes[binding.node_id] = node
  end
  if binding and node.endpoint then
    local last_seen_ms = tonumber(node.last_seen_ms or node.last_heard_ms or '')
    local left_ms = valid_until(binding, sandbox_id, last_seen_ms, binding_ttl_ms) - now
    if left_ms > 0 then
      for _, fact in ipairs({ sandbox_id, binding.node_id, node.endpoint, integer(left_ms) }) do reply[#reply + 1] = fact end
    end
  end
end
return reply
