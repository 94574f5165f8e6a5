-- confirm_reservation.lua: tells which sandbox a reservation became, and binds that sandbox to its node.
-- Guarantee: confirmed and bound in one step; of a confirm racing a cancel exactly one takes effect; one
--            sandbox id is told for one reservation only.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2]: reservation_id
-- ARGV[3]: sandbox_id
-- Reply: {'ok', replayed, orphaned, {reservation fields}, {changes of others}} | {'conflict', why, {reservation fields}}
--        {'missing', rebuilding} | {'uninitialised'} | {'unknown', what, found} | {'not_rebuilt', ms, of what}
-- Cost: O(log reservations)
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
local id, sandbox_id = ARGV[2], ARGV[3]
local reservation = read_reservation(id)
if not reservation then return missing(now) end

local function fields()
  return redis.call('HGETALL', reservation_key(id))
end

-- Decide, once time has had its say.
end_when_due(reservation, now)
save_rows()
local told = reservation.sandbox_told == '1'
local named = reservation.sandbox_told == 'named'
local other = reservation_named(sandbox_id, now)
save_rows()
if other and other.reservation_id == id then other = nil end
if reservation.state == 'cancelled' then return { 'conflict', 'cancelled', fields() } end
if (told or named) and reservation.sandbox_id ~= sandbox_id then
  return { 'conflict', 'another sandbox was told', fields() }
end
if other and other.sandbox_told ~= '0' then return { 'conflict', 'told for another reservation', fields() } end
if told and (reservation.state == 'confirmed' or reservation.state == 'settled') then
  return { 'ok', '1', reservation.orphaned or '0', fields(), told_changes() }
end

-- Write.
if other then unassign(other, now) end
local deadline = now + settings.placement_reservation_ttl_ms
local misnamed = reservation.sandbox_id and reservation.sandbox_id ~= sandbox_id
if misnamed then drop_name(reservation) end
local orphaned = reservation.state == 'expired'
local counts_again = orphaned or (misnamed and reservation.state == 'settled')
local gone = is_evicted(reservation.node_id, now)
if counts_again and gone then
  reservation.state = 'settled'
  if named then drop_claim(reservation.node_id, sandbox_id) end
  change_reservation(id, 'state', 'settled', 'reason', 'node_removed', 'orphaned', orphaned and 1 or 0)
elseif counts_again then
  reopen(reservation, 'confirmed', deadline)
  if orphaned then
    change_reservation(id, 'orphaned', 1)
    redis.call('HINCRBY', key('stats'), 'reservations_orphaned', 1)
    -- @inline "include/groups"
    charge_again(reservation, read_budget())
  end
elseif reservation.state == 'pending' then
  reservation.state = 'confirmed'
  change_reservation(id, 'state', 'confirmed', 'expires_at_ms', integer(deadline))
  redis.call('ZADD', key('expiry'), integer(deadline), id)
end
change_reservation(id, 'confirmed_at_ms', integer(now))
name_reservation(reservation, sandbox_id, true)
local node_id = reservation.node_id
local listed = is_listed(node_id, sandbox_id)
-- What a node reported before it was evicted counts no more.
local deleted = not gone and redis.call('ZSCORE', node_key(node_id, 'explained'), 'delete ' .. sandbox_id) ~= false
if deleted and listed then
  local record = record_of(sandbox_id)
  deleted = record ~= nil and record.node_id == node_id and record.deleted > 0
end
if listed or not deleted then
  bind(node_id, sandbox_id, now, { reservation = reservation })
  tallies.count_reservation_spread(reservation, false)
end
-- Its end was told before its beginning; or the load counts it already.
if reservation.state == 'confirmed' and (deleted or listed) then
  finish_reservation(reservation, 'settled', deleted and 'deleted' or 'listed', now)
end
-- @include "include/avoidance"
note_creation(reservation, now)
redis.call('HINCRBY', key('stats'), 'reservations_confirmed', 1)
save_rows()
close_clock(now)
leave_untold(id)
return { 'ok', '0', orphaned and '1' or '0', fields(), told_changes() }
