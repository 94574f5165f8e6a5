-- lookup_binding.lua: tells which node a sandbox runs on.
-- Guarantee: writes nothing, so a read replica can answer; an outlived binding is a miss.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2]: sandbox_id
-- Reply: {'bound', node_id, endpoint, recorded_at_ms} | {'missing', rebuilding}
--        {'uninitialised'} | {'unknown', what, found}
-- Cost: O(1)
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/clock"
-- @include "include/settings"
-- @include "include/validity"
-- @include "include/rebuilding"

local settings, refused = read_settings()
if refused then return refused end
read_binding_settings(settings)
local binding_ttl_ms = settings.binding_ttl_ms
local now = open_clock(ARGV[1])
local binding = record_of(ARGV[2])
if not binding then return missing(now) end
local node = as_table_of(node_key(binding.node_id), 'endpoint', 'last_seen_ms', 'last_heard_ms')
local last_seen_ms = tonumber(node.last_seen_ms or node.last_heard_ms or '')
if not node.endpoint or valid_until(binding, ARGV[2], last_seen_ms, binding_ttl_ms) <= now then return missing(now) end
return { 'bound', binding.node_id, node.endpoint, integer(binding.recorded_at_ms) }
