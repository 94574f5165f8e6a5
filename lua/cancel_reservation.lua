-- cancel_reservation.lua: gives a reservation back; its capacity is free for every replica at once.
-- Guarantee: of a cancel racing a confirm exactly one takes effect. A cancel that arrives before its
--            schedule leaves a tombstone that refuses it.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2]: reservation_id
-- ARGV[3]: reason  for people, may be ''
-- ARGV[4]: tombstone_ms  how long to refuse a schedule that has not arrived; '' leaves no tombstone
-- ARGV[5]: cause  node_refused: the node answered that it would not create it, which counts against the node;
--          caller: its create may still go on
-- Reply: {'ok', replayed, orphaned, {reservation fields}} | {'conflict', why, {reservation fields} | {}: of a batch}
--        {'missing', rebuilding} | {'uninitialised'} | {'unknown', what, found} | {'not_rebuilt', ms, of what}
-- Cost: O(log reservations)
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/clock"
-- @include "include/settings"
-- @include "include/deadlines"
-- @include "include/rebuilding"

local settings, refused = read_settings()
if refused then return refused end
local now = open_clock(ARGV[1])
local gated = not_rebuilt(settings.gated_until_ms, now)
if gated then return gated end
local id, reason = ARGV[2], ARGV[3]
local reservation = read_reservation(id)
if not reservation then
  if ARGV[4] == '' then return missing(now) end
  -- By the key of its schedule; a batch with this key has the same id but for its first letter.
  local batch_id = 'b' .. string.sub(id, 2)
  if redis.call('EXISTS', key('batch:' .. batch_id)) == 1 then
    return { 'conflict', 'the idempotency key belongs to a batch; cancel its reservations by their ids', {} }
  end
  redis.call('HSET', reservation_key(id), 'node_id', '', 'state', 'cancelled', 'lifecycle', 'explicit', 'cpu_count', 0,
    'memory_bytes', 0, 'created_at_ms', integer(now), 'expires_at_ms', integer(now + tonumber(ARGV[4])),
    'finished_at_ms', integer(now), 'reason', reason, 'tombstone', 1, 'revision', 1)
  redis.call('PEXPIRE', reservation_key(id), ARGV[4])
  redis.call('HINCRBY', key('stats'), 'tombstones', 1)
  return { 'ok', '0', '0', redis.call('HGETALL', reservation_key(id)) }
end

end_when_due(reservation, now)
local replayed, conflict = reservation.state == 'cancelled', nil
if reservation.sandbox_told == '1' and reservation.state ~= 'expired' and not replayed then
  conflict = reservation.state == 'settled' and 'settled' or 'confirmed'
elseif reservation.state == 'pending' then
  reservation.answered = ARGV[5] == 'node_refused'
  finish_reservation(reservation, 'cancelled', reason, now)
  if ARGV[5] == 'node_refused' then
    -- @inline "include/avoidance"
    note_refusal(reservation, now)
    if settings.slack and reservation.origin then
      -- @inline "include/warm_keys"
      warm_keys.refuse(reservation.node_id, reservation.origin, reservation.sequence)
    end
  end
end
save_rows()
close_clock(now)
local fields = redis.call('HGETALL', reservation_key(id))
if conflict then return { 'conflict', conflict, fields } end
return { 'ok', replayed and '1' or '0', reservation.orphaned or '0', fields }
