-- @include "include/bindings"
-- A reservation's sandbox: told by a caller, or only suggested by an event (provisional).
--   sandbox:<id>          the reservation that carries the sandbox id
--   node:<id>:claims      sandbox id → reservation, of reservations that still hold capacity
--   node:<id>:acknowledged   settled by counters, not named yet, by sequence

-- The reservation that carries a sandbox id: an open one, or one settled not long ago. May end it, if
-- it is due; the caller saves the rows.
local function reservation_named(sandbox_id, now)
  local id = redis.call('GET', key('sandbox:' .. sandbox_id))
  local reservation = id and read_reservation(id)
  if not reservation then return nil end
  end_when_due(reservation, now)
  if reservation.state == 'expired' or reservation.state == 'cancelled' then return nil end
  return reservation
end

local function name_reservation(reservation, sandbox_id, told)
  local id, node_id = reservation.reservation_id, reservation.node_id
  reservation.sandbox_id, reservation.sandbox_told = sandbox_id, told and '1' or '0'
  redis.call('HSET', reservation_key(id), 'sandbox_id', sandbox_id, 'sandbox_told', reservation.sandbox_told)
  redis.call('ZREM', node_key(node_id, 'acknowledged'), id)
  if reservation.state == 'settled' then
    redis.call('SET', key('sandbox:' .. sandbox_id), id, 'PX', integer(readable_for(reservation)))
  else
    redis.call('SET', key('sandbox:' .. sandbox_id), id)
    redis.call('HSET', node_key(node_id, 'claims'), sandbox_id, id)
  end
end

-- A name that is another reservation's by now is left to it.
local function drop_name(reservation)
  local sandbox_id = reservation.sandbox_id
  if redis.call('GET', key('sandbox:' .. sandbox_id)) == reservation.reservation_id then
    redis.call('DEL', key('sandbox:' .. sandbox_id))
    redis.call('HDEL', node_key(reservation.node_id, 'claims'), sandbox_id)
  end
  redis.call('HDEL', reservation_key(reservation.reservation_id), 'sandbox_id', 'sandbox_told')
  reservation.sandbox_id, reservation.sandbox_told = nil, nil
end

-- Counts again after it had ended: a late confirm, or a name that turned out to be another's.
local function reopen(reservation, state, expires_at_ms)
  local id, node_id = reservation.reservation_id, reservation.node_id
  release(reservation)
  hold(reservation, tonumber(reservation.cpu_count), tonumber(reservation.memory_bytes), 1)
  reservation.state, reservation.expires_at_ms = state, integer(expires_at_ms)
  redis.call('HSET', reservation_key(id), 'state', state, 'expires_at_ms', integer(expires_at_ms))
  redis.call('HDEL', reservation_key(id), 'reason', 'finished_at_ms', 'held_cpu', 'held_memory', 'held_count',
    'report_generation')
  redis.call('PERSIST', reservation_key(id))
  redis.call('ZREM', key('finished'), id)
  redis.call('ZADD', key('reservations'), reservation.sequence, id)
  redis.call('ZADD', key('expiry'), integer(expires_at_ms), id)
  redis.call('ZADD', node_key(node_id, 'reservations'), reservation.sequence, id)
end

-- Takes a provisional name away. What it settled is undone: the reservation counts again under its
-- old deadline, and ends at once when that has passed.
local function lose_name(reservation, now)
  drop_name(reservation)
  if reservation.state == 'settled' then reopen(reservation, 'pending', tonumber(reservation.expires_at_ms)) end
  end_when_due(reservation, now)
end

-- What a report with a roster says of one claim of its node.
local function judge_claim(node_id, sandbox_id, listed, settings, now, credit)
  local id = redis.call('HGET', node_key(node_id, 'claims'), sandbox_id)
  local reservation = id and read_reservation(id)
  if not reservation then
    redis.call('HDEL', node_key(node_id, 'claims'), sandbox_id)
    return
  end
  if listed then
    if credit then
      reduce_credit(credit, tonumber(reservation.cpu_count), tonumber(reservation.memory_bytes))
    end
    finish_reservation(reservation, 'settled', 'listed', now)
  elseif reservation.state == 'confirmed' and now - tonumber(reservation.confirmed_at_ms) >= settings.binding_grace_ms then
    -- It was open since the last report, so what grew may have been its sandbox.
    if credit and reservation.lifecycle == 'explicit' then
      reduce_credit(credit, tonumber(reservation.cpu_count), tonumber(reservation.memory_bytes))
    end
    finish_reservation(reservation, 'settled', 'gone', now)
    unbind(node_id, { sandbox_id })
  end
end
