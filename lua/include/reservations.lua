-- @include "include/rows"
-- @include "include/groups"
-- How a reservation holds capacity, and the one way it stops doing so.
local RETENTION_MS = 3600000
local EXPIRY_SLICE = 1024

local function read_reservation(reservation_id)
  local flat = redis.call('HGETALL', reservation_key(reservation_id))
  if #flat == 0 then return nil end
  local reservation = as_table(flat)
  reservation.reservation_id = reservation_id
  return reservation
end

-- What the reservation keeps from others: capacity in the row of its node, by what is still held.
local function hold(reservation, cpu, memory, count)
  reservation.held_cpu, reservation.held_memory, reservation.held_count = cpu, memory, count
  local row = row_of(reservation.node_id)
  if not row then return end
  row.pending_cpu = row.pending_cpu + cpu
  row.pending_memory = row.pending_memory + memory
  row.pending_count = row.pending_count + count
end

local function release(reservation)
  local row = row_of(reservation.node_id)
  if row then
    row.pending_cpu = row.pending_cpu - (tonumber(reservation.held_cpu) or 0)
    row.pending_memory = row.pending_memory - (tonumber(reservation.held_memory) or 0)
    row.pending_count = row.pending_count - (tonumber(reservation.held_count) or 0)
  end
  reservation.held_cpu, reservation.held_memory, reservation.held_count = 0, 0, 0
end

-- Growth of a node's counters that this reservation may explain is no credit for another one.
local function explain_growth(node_id, cpu, memory, count)
  local node = node_key(node_id)
  if redis.call('EXISTS', node) == 0 then return end
  redis.call('HINCRBY', node, 'explained_count', integer(count))
  if cpu > 0 then redis.call('HINCRBY', node, 'explained_cpu', integer(cpu))
  else redis.call('HSET', node, 'explained_any_cpu', 1) end
  if memory > 0 then redis.call('HINCRBY', node, 'explained_memory', integer(memory))
  else redis.call('HSET', node, 'explained_any_memory', 1) end
end

local function readable_for(reservation)
  return math.max(RETENTION_MS, tonumber(reservation.ttl_ms) or 0)
end

-- Drops what has stopped being readable from the listing, a few at a time, so it never piles up.
local function purge_finished(now, slice)
  local gone = redis.call('ZRANGEBYSCORE', key('finished'), '-inf', integer(now), 'LIMIT', 0, slice)
  for _, reservation_id in ipairs(gone) do
    redis.call('ZREM', key('finished'), reservation_id)
    redis.call('ZREM', key('reservations'), reservation_id)
    local node_id = redis.call('HGET', reservation_key(reservation_id), 'node_id')
    if node_id then redis.call('ZREM', node_key(node_id, 'unnamed'), reservation_id) end
    redis.call('DEL', reservation_key(reservation_id))
  end
  return #gone
end

-- Ends a reservation: nothing is held any more, and it stays readable for a while.
--   by_counters: it may still be named by an event, so it stays among the unnamed ones.
local function finish_reservation(reservation, state, reason, now, by_counters)
  local id, node_id = reservation.reservation_id, reservation.node_id
  local retention = readable_for(reservation)
  release(reservation)
  reservation.state, reservation.reason, reservation.finished_at_ms = state, reason, integer(now)
  redis.call('HSET', reservation_key(id), 'state', state, 'reason', reason, 'finished_at_ms', integer(now),
    'held_cpu', 0, 'held_memory', 0, 'held_count', 0)
  redis.call('PEXPIRE', reservation_key(id), integer(retention))
  redis.call('ZREM', key('expiry'), id)
  redis.call('ZREM', node_key(node_id, 'reservations'), id)
  redis.call('ZADD', key('finished'), integer(now + retention), id)
  if not by_counters then redis.call('ZREM', node_key(node_id, 'unnamed'), id) end
  local sandbox_id = reservation.sandbox_id
  if sandbox_id and sandbox_id ~= '' then
    redis.call('HDEL', node_key(node_id, 'claims'), sandbox_id)
    if state == 'settled' then
      redis.call('PEXPIRE', key('sandbox:' .. sandbox_id), integer(retention))
    else
      redis.call('DEL', key('sandbox:' .. sandbox_id))
    end
  end
  if reservation.lifecycle == 'explicit' or (state == 'settled' and (reason == 'listed' or reason == 'deleted')) then
    explain_growth(node_id, tonumber(reservation.cpu_count), tonumber(reservation.memory_bytes), 1)
  end
  if state == 'cancelled' or (state == 'expired' and reservation.lifecycle == 'explicit') then
    give_back(reservation)
  end
  redis.call('HINCRBY', key('stats'), 'reservations_' .. state, 1)
  purge_finished(now, 4)
end

local function expire_reservation(reservation, now)
  if reservation.state == 'confirmed' then
    finish_reservation(reservation, 'settled', 'unobserved', now)
  else
    finish_reservation(reservation, 'expired', 'deadline', now)
  end
end

-- Works off the head of `expiry`. False: more are due than one call may handle.
local function expire_due(now, slice)
  local due = redis.call('ZRANGEBYSCORE', key('expiry'), '-inf', integer(now), 'LIMIT', 0, slice)
  for _, reservation_id in ipairs(due) do
    local reservation = read_reservation(reservation_id)
    if reservation then
      expire_reservation(reservation, now)
    else
      redis.call('ZREM', key('expiry'), reservation_id)
    end
  end
  return #due < slice
end
