-- record_binding.lua: records which node a sandbox runs on, as a gateway tells after a create or a fork.
-- Guarantee: only a listed (node, endpoint) pair is recorded; the last record wins across nodes.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2]: sandbox_id
-- ARGV[3]: node_id
-- ARGV[4]: endpoint
-- Reply: {'recorded', {changes of reservations}} | {'refused'}
--        {'uninitialised'} | {'unknown', what, found} | {'not_rebuilt', ms, of what}
-- Cost: O(log bindings)
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/clock"
-- @include "include/settings"
-- @include "include/identity"
-- @include "include/rebuilding"

local settings, refused = read_settings()
if refused then return refused end
local now = open_clock(ARGV[1])
local gated = not_rebuilt(settings.gated_until_ms, now)
if gated then return gated end
local node = as_table_of(node_key(ARGV[3]), 'endpoint', 'discovery')
if node.endpoint ~= ARGV[4] or (node.discovery ~= 'active' and node.discovery ~= 'lingering') then
  return { 'refused' }
end
local reservation = reservation_named(ARGV[2], now)
local carried = reservation and reservation.node_id == ARGV[3]
-- An expired reservation may still claim the name, and knows its size.
local claim = redis.call('HGET', node_key(ARGV[3], 'claims'), ARGV[2])
local owner = carried and reservation or (claim and read_reservation(claim))
bind(ARGV[3], ARGV[2], now, { reservation = owner })
if owner then tallies.count_reservation_spread(owner, false) end
if carried and reservation.sandbox_told ~= '1' then
  change_reservation(reservation.reservation_id, 'sandbox_told', 1)
  forget_doubt(reservation)
  hold_begun(reservation, now)
end
save_rows()
close_clock(now)
return { 'recorded', told_changes() }
