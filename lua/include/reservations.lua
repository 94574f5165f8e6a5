-- @include "include/holding"
-- @include "include/doubts"
-- @include "include/records"
-- @include "include/revisions"
-- How a reservation ends: one way for every reason.
local RETENTION_MS = 3600000
-- The report that is being accounted for, by its generation; a script that records one sets it.
local report_generation

local function read_reservation(reservation_id)
  local flat = redis.call('HGETALL', reservation_key(reservation_id))
  if #flat == 0 then return nil end
  local reservation = as_table(flat)
  reservation.reservation_id = reservation_id
  return reservation
end

-- Growth of a node's counters that this reservation may explain is no credit for another one.
local function explain_growth(node_id, cpu, memory, count)
  local node = node_key(node_id)
  if redis.call('EXISTS', node) == 0 then return end
  local account = account_of(node_id)
  if account then account.explained = true end
  redis.call('HINCRBY', node, 'explained_count', integer(count))
  if cpu > 0 then redis.call('HINCRBY', node, 'explained_cpu', integer(cpu))
  else redis.call('HSET', node, 'explained_any_cpu', 1) end
  if memory > 0 then redis.call('HINCRBY', node, 'explained_memory', integer(memory))
  else redis.call('HSET', node, 'explained_any_memory', 1) end
end

local function readable_for(reservation)
  local ttl_ms = tonumber(reservation.ttl_ms or '') or (reservation.expires_at_ms - reservation.created_at_ms)
  return math.max(RETENTION_MS, ttl_ms)
end

-- Drops what has stopped being readable, a few at a time, so it never piles up. Its hash tells which lists
-- it stands in, so the hash lives longer by itself; its own TTL is for what this misses.
local function purge_finished(now, slice)
  local gone = redis.call('ZRANGEBYSCORE', key('finished'), '-inf', integer(now), 'LIMIT', 0, slice)
  for _, reservation_id in ipairs(gone) do
    redis.call('ZREM', key('finished'), reservation_id)
    redis.call('ZREM', key('reservations'), reservation_id)
    local node_id, state, sequence = unpack(redis.call('HMGET', reservation_key(reservation_id), 'node_id', 'state',
      'sequence'))
    if node_id then
      tallies.move_state(sequence, state, nil)
      redis.call('ZREM', node_key(node_id, 'acknowledged'), reservation_id)
      redis.call('ZREM', node_key(node_id, 'finished'), reservation_id)
    else
      tallies.distrust()
    end
    redis.call('DEL', reservation_key(reservation_id))
  end
  return #gone
end

-- Ends a reservation: nothing is held any more, and it stays readable for a while.
-- One that counters settled may still be named by an event, so it is kept among the acknowledged.
local function finish_reservation(reservation, state, reason, now)
  local ACKNOWLEDGED_MAX = 1024
  local id, node_id = reservation.reservation_id, reservation.node_id
  local retention = readable_for(reservation)
  release(reservation)
  tallies.count_reservation_spread(reservation, false)
  local account = account_of(node_id)
  if account then account.credit = account.credit - 1 end
  if not reservation.sandbox_id then redis.call('HDEL', node_key(node_id, 'unnamed'), id) end
  doubt_end(reservation, state, reason)
  reservation.state, reservation.reason, reservation.finished_at_ms = state, reason, integer(now)
  change_reservation(id, 'state', state, 'reason', reason, 'finished_at_ms', integer(now),
    'held_cpu', 0, 'held_memory', 0, 'held_count', 0)
  if reservation.resources then redis.call('HSET', reservation_key(id), 'held_resources', '') end
  if report_generation then redis.call('HSET', reservation_key(id), 'report_generation', report_generation) end
  redis.call('PEXPIRE', reservation_key(id), integer(retention + RETENTION_MS))
  redis.call('ZREM', key('expiry'), id)
  redis.call('ZREM', node_key(node_id, 'reservations'), id)
  redis.call('ZADD', key('finished'), integer(now + retention), id)
  redis.call('ZADD', node_key(node_id, 'finished'), reservation.sequence, id)
  local sandbox_id = reservation.sandbox_id
  if reason == 'counters' and not sandbox_id then
    redis.call('ZADD', node_key(node_id, 'acknowledged'), reservation.sequence, id)
    redis.call('ZREMRANGEBYRANK', node_key(node_id, 'acknowledged'), 0, -ACKNOWLEDGED_MAX - 1)
  end
  if sandbox_id and sandbox_id ~= '' then
    local may_begin = reservation.sandbox_told == 'named' and begins_until(reservation, state) ~= nil
    if not may_begin or reason == 'node_removed' then drop_claim(node_id, sandbox_id) end
    if state == 'settled' then
      redis.call('PEXPIRE', key('sandbox:' .. sandbox_id), integer(retention))
    else
      redis.call('DEL', key('sandbox:' .. sandbox_id))
    end
  end
  if reservation.lifecycle == 'explicit' or (state == 'settled' and (reason == 'listed' or reason == 'deleted')) then
    explain_growth(node_id, tonumber(reservation.cpu_count), tonumber(reservation.memory_bytes), 1)
  end
  local unused = state == 'cancelled' or (state == 'expired' and reservation.lifecycle == 'explicit')
  if unused and reservation.group_charged == '1' then
    -- @inline "include/groups"
    give_back(reservation)
  end
  redis.call('HINCRBY', key('stats'), 'reservations_' .. state, 1)
  purge_finished(now, 4)
end
