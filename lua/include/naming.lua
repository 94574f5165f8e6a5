-- @include "include/identity"
-- Whether a sandbox id that a caller gives is another's: of an open reservation, of a sandbox that runs or is
-- recorded to, or of one that was listed, told or deleted lately.

-- The fields of the reservation that has it, {} when it is no reservation's; nil when nobody has it.
local function holder_of_name(sandbox_id, now)
  local reservation = reservation_named(sandbox_id, now)
  save_rows()
  if reservation then return redis.call('HGETALL', reservation_key(reservation.reservation_id)) end
  local record = record_of(sandbox_id)
  if record then
    local binding_ttl_ms = tonumber(redis.call('HGET', KEYS[1], 'binding_ttl_ms'))
    local node = as_table_of(node_key(record.node_id), 'last_seen_ms', 'last_heard_ms')
    local last_seen_ms = tonumber(node.last_seen_ms or node.last_heard_ms or '')
    if record.deleted > 0 or valid_until(record, sandbox_id, last_seen_ms, binding_ttl_ms) > now then return {} end
  end
  local ended_ms = redis.call('ZSCORE', key('ended'), sandbox_id)
  if ended_ms and now - tonumber(ended_ms) < ENDED_MS then return {} end
  return nil
end
