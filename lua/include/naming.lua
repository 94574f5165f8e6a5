-- @include "include/identity"
-- Whether a sandbox id that a caller gives is another's: of an open reservation, of a sandbox that runs or is
-- recorded to, or of one that was listed, told or deleted lately.

-- The fields of the reservation that has it, {} when it is no reservation's; nil when nobody has it.
local function holder_of_name(sandbox_id, now)
  local reservation = reservation_named(sandbox_id, now)
  save_rows()
  if reservation then return redis.call('HGETALL', reservation_key(reservation.reservation_id)) end
  if record_of(sandbox_id) then return {} end
  local ended_ms = redis.call('ZSCORE', key('ended'), sandbox_id)
  if ended_ms and now - tonumber(ended_ms) < ENDED_MS then return {} end
  return nil
end
