-- repair_reservations.lua: puts reservations back into the lists and names that lead to them, or out of them.
-- Guarantee: changes no state, deadline or size; one that lacks what makes it one is removed.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2..]: reservation_ids  at most 100; also ids that only a list knows
-- Reply: {'repaired'} | {'uninitialised'} | {'unknown', what, found}
-- Cost: O(ids log reservations)
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/clock"
-- @include "include/settings"
-- @include "include/reservations"

local _, refused = read_settings()
if refused then return refused end
local now = open_clock(ARGV[1])

local function unlist_reservation(id)
  for _, name in ipairs({ 'reservations', 'expiry', 'finished' }) do redis.call('ZREM', key(name), id) end
end

local function carries(sandbox_id, id) return redis.call('GET', key('sandbox:' .. sandbox_id)) == id end

local function repair_open(reservation, id)
  local node_id, sandbox_id = reservation.node_id, reservation.sandbox_id
  redis.call('PERSIST', reservation_key(id))
  redis.call('ZREM', key('finished'), id)
  redis.call('ZREM', node_key(node_id, 'finished'), id)
  redis.call('ZADD', key('reservations'), reservation.sequence, id)
  redis.call('ZADD', key('expiry'), reservation.expires_at_ms, id)
  redis.call('ZADD', node_key(node_id, 'reservations'), reservation.sequence, id)
  if not sandbox_id then return note_unnamed(reservation, held_by(reservation)) end
  redis.call('SET', key('sandbox:' .. sandbox_id), id)
  redis.call('HSET', node_key(node_id, 'claims'), sandbox_id, id)
  redis.call('HDEL', node_key(node_id, 'unnamed'), id)
end

local function repair_finished(reservation, id)
  local node_id, sandbox_id, retention = reservation.node_id, reservation.sandbox_id, readable_for(reservation)
  redis.call('HSET', reservation_key(id), 'held_cpu', 0, 'held_memory', 0, 'held_count', 0)
  if reservation.resources then redis.call('HSET', reservation_key(id), 'held_resources', '') end
  redis.call('ZREM', key('expiry'), id)
  redis.call('ZREM', node_key(node_id, 'reservations'), id)
  redis.call('HDEL', node_key(node_id, 'unnamed'), id)
  redis.call('ZADD', key('reservations'), reservation.sequence, id)
  redis.call('ZADD', node_key(node_id, 'finished'), reservation.sequence, id)
  if not redis.call('ZSCORE', key('finished'), id) then
    redis.call('ZADD', key('finished'), integer(now + retention), id)
    redis.call('PEXPIRE', reservation_key(id), integer(retention + RETENTION_MS))
  end
  if not sandbox_id then return end
  if redis.call('HGET', node_key(node_id, 'claims'), sandbox_id) == id then
    redis.call('HDEL', node_key(node_id, 'claims'), sandbox_id)
  end
  if not carries(sandbox_id, id) then return end
  if reservation.state == 'settled' then
    redis.call('PEXPIRE', key('sandbox:' .. sandbox_id), integer(retention))
  else
    redis.call('DEL', key('sandbox:' .. sandbox_id))
  end
end

tallies.distrust()
for index = 2, #ARGV do
  local id = ARGV[index]
  local reservation = read_reservation(id)
  if not reservation or reservation.tombstone then
    unlist_reservation(id)
  elseif not (reservation.state and reservation.node_id and reservation.sequence and reservation.expires_at_ms
    and reservation.created_at_ms and reservation.cpu_count and reservation.memory_bytes) then
    unlist_reservation(id)
    redis.call('DEL', reservation_key(id))
  elseif reservation.state == 'pending' or reservation.state == 'confirmed' then
    repair_open(reservation, id)
  else
    repair_finished(reservation, id)
  end
end
return { 'repaired' }
