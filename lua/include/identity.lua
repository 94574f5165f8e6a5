-- @include "include/bindings"
-- @include "include/deadlines"
-- A reservation's sandbox: told by a caller ('1'), named by the caller when it scheduled ('named'), or only
-- suggested by an event ('0', provisional).
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
  weigh_again(node_id)
  if told then forget_doubt(reservation) end
  redis.call('HDEL', node_key(node_id, 'unnamed'), id)
  reservation.sandbox_id, reservation.sandbox_told = sandbox_id, told and '1' or '0'
  change_reservation(id, 'sandbox_id', sandbox_id, 'sandbox_told', reservation.sandbox_told)
  redis.call('ZREM', node_key(node_id, 'acknowledged'), id)
  if reservation.state == 'settled' then
    redis.call('SET', key('sandbox:' .. sandbox_id), id, 'PX', integer(readable_for(reservation)))
  else
    redis.call('SET', key('sandbox:' .. sandbox_id), id)
    redis.call('HSET', node_key(node_id, 'claims'), sandbox_id, id)
  end
end

-- The sandbox of a pending one is told to exist, so it is held as long as a confirmed one. Its own deadline was for
-- its create to begin, and comes back when the name turns out to be another's.
local function hold_begun(reservation, now)
  local own = reservation.expires_at_ms
  local deadline = now + tonumber(redis.call('HGET', KEYS[1], 'placement_reservation_ttl_ms'))
  if reservation.state ~= 'pending' or deadline <= tonumber(own) then return end
  reservation.ttl_ms = reservation.ttl_ms or integer(own - reservation.created_at_ms)
  reservation.own_deadline_ms, reservation.expires_at_ms = reservation.own_deadline_ms or own, integer(deadline)
  change_reservation(reservation.reservation_id, 'ttl_ms', reservation.ttl_ms, 'expires_at_ms', reservation.expires_at_ms,
    'own_deadline_ms', reservation.own_deadline_ms)
  redis.call('ZADD', key('expiry'), reservation.expires_at_ms, reservation.reservation_id)
end

-- A name that is another reservation's by now is left to it.
local function drop_name(reservation)
  local sandbox_id = reservation.sandbox_id
  if redis.call('GET', key('sandbox:' .. sandbox_id)) == reservation.reservation_id then
    redis.call('DEL', key('sandbox:' .. sandbox_id))
    drop_claim(reservation.node_id, sandbox_id)
  end
  if reservation.spread then
    local record = record_of(sandbox_id)
    if record and record.spread == reservation.spread and record.node_id == reservation.node_id then
      change_record(sandbox_id, record, { spread = '' })
    end
    tallies.count_reservation_spread(reservation, is_open(reservation.state))
  end
  redis.call('HDEL', reservation_key(reservation.reservation_id), 'sandbox_id', 'sandbox_told')
  change_reservation(reservation.reservation_id)
  reservation.sandbox_id, reservation.sandbox_told = nil, nil
  if reservation.own_deadline_ms then
    reservation.expires_at_ms = reservation.own_deadline_ms
    change_reservation(reservation.reservation_id, 'expires_at_ms', reservation.expires_at_ms)
    if reservation.state == 'pending' then
      redis.call('ZADD', key('expiry'), reservation.expires_at_ms, reservation.reservation_id)
    end
  end
  if is_open(reservation.state) then note_unnamed(reservation, held_by(reservation)) end
end

-- Counts again after it had ended: a late confirm, or a name that turned out to be another's.
local function reopen(reservation, state, expires_at_ms)
  local id, node_id = reservation.reservation_id, reservation.node_id
  local cpu, memory = tonumber(reservation.cpu_count), tonumber(reservation.memory_bytes)
  local account = account_of(node_id)
  if account then account.credit = account.credit + 1 end
  forget_doubt(reservation)
  release(reservation)
  hold(reservation, cpu, memory, 1)
  -- Held before it is open: what is stopped in between holds too much, and never too little.
  save_rows()
  if not reservation.sandbox_id then note_unnamed(reservation, cpu, memory, 1) end
  reservation.state, reservation.expires_at_ms = state, integer(expires_at_ms)
  change_reservation(id, 'state', state, 'expires_at_ms', integer(expires_at_ms))
  tallies.count_reservation_spread(reservation, true)
  redis.call('HDEL', reservation_key(id), 'reason', 'finished_at_ms', 'held_cpu', 'held_memory', 'held_count',
    'held_resources',
    'report_generation')
  redis.call('PERSIST', reservation_key(id))
  redis.call('ZREM', key('finished'), id)
  redis.call('ZREM', node_key(node_id, 'finished'), id)
  redis.call('ZADD', key('reservations'), reservation.sequence, id)
  redis.call('ZADD', key('expiry'), integer(expires_at_ms), id)
  redis.call('ZADD', node_key(node_id, 'reservations'), reservation.sequence, id)
end

-- Unassigns a provisional sandbox id. What it settled is undone: the reservation counts again under its
-- old deadline, and ends at once when that has passed.
local function unassign(reservation, now)
  drop_name(reservation)
  if reservation.state == 'settled' then reopen(reservation, 'pending', tonumber(reservation.expires_at_ms)) end
  end_when_due(reservation, now)
end
