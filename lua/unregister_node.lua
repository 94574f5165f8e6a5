-- unregister_node.lua: forgets a node's report, bindings and artifacts; it stays in the discovered list.
-- Guarantee: an instance that is no longer the one reporting changes nothing.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2]: node_id
-- ARGV[3]: service_instance_id
-- Reply: {'unregistered'} | {'mismatch', reporting instance} | {'again'}
--        {'uninitialised'} | {'unknown', what, found} | {'not_rebuilt', ms, of what}
-- Cost: O(1) plus slices of 500 bindings
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/clock"
-- @include "include/settings"
-- @include "include/discovery"
-- @include "include/bindings"
-- @include "include/rebuilding"
local SLICE = 500

local settings, refused = read_settings()
if refused then return refused end
local now = open_clock(ARGV[1])
local gated = not_rebuilt(settings.gated_until_ms, now)
if gated then return gated end
local node_id = ARGV[2]
local known = as_table_of(node_key(node_id), 'service_instance_id', 'discovery', 'last_seen_ms')
if known.last_seen_ms and known.discovery ~= 'removed' and known.service_instance_id ~= ARGV[3] then
  return { 'mismatch', known.service_instance_id }
end

local row = row_of(node_id)
if row and known.last_seen_ms then
  -- The row first: what is stopped before the report is forgotten is unregistered again.
  local account = account_of(node_id)
  account.roster_whole, account.lowered_cpu, account.lowered_memory = 0, 0, 0
  weigh_again(node_id)
  row.avoided = nil
  observe(row, known.discovery, nil, nil, false, read_observation_settings())
  save_rows()
  for _, set in ipairs({ 'seen', 'silent', 'avoided_until' }) do redis.call('ZREM', key(set), node_id) end
  forget_observation(node_id, { 'endpoint', 'discovery', 'self_registered' })
  labelling.apply(node_id)
  save_rows()
end
forget_artifacts(node_id)
withdraw_cpu_config(node_id)
-- Were its caller to stop between two slices, maintenance would do the rest.
redis.call('ZADD', key('forgotten'), integer(now), node_id)
close_clock(now)

local listed = forget_listed(node_id, SLICE, now)
local assigned = redis.call('ZRANGE', node_key(node_id, 'assigned'), 0, SLICE - 1)
local unbound = unbind(node_id, assigned, now)
save_rows()
if listed == SLICE or (#assigned == SLICE and unbound > 0) then return { 'again', 'bindings' } end
redis.call('ZREM', key('forgotten'), node_id)
return { 'unregistered' }
