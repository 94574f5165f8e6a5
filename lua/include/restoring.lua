-- @include "include/identity"
-- @include "include/groups"
-- @include "include/memories"
-- Restores one reservation after a loss, and all that depends on it.

-- What is not of the reservation itself, or was true of reports that are lost.
local NOT_PUT_BACK = {
  reservation_id = true, held_cpu = true, held_memory = true, held_count = true, held_resources = true,
  report_generation = true, restored = true,
  spread_counted = true,
}

-- The group that a reservation was charged to, made anew when the ledger lost it. One that is used up stays until
-- somebody wants to join it: more of its charges may follow.
local function charge_back(reservation, direction)
  if reservation.group_charged ~= '1' then return end
  local sequence, group = tonumber(reservation.group_sequence), read_group(reservation.group_key)
  if group and group.sequence > sequence then return end
  if not group or group.sequence < sequence then
    if direction < 0 then return end
    group = {
      key = reservation.group_key, sequence = sequence, count = 0, cpu = 0, memory_mb = 0,
      opened_at_ms = tonumber(reservation.created_at_ms), node_id = reservation.node_id,
    }
    redis.call('ZADD', key('groups:recent'), 'GT', integer(sequence), group.key)
  end
  charge_group(group, charge_of(reservation), direction)
  write_group(group)
end

local function take_out(reservation)
  local id, node_id, sandbox_id = reservation.reservation_id, reservation.node_id, reservation.sandbox_id
  if not has_ended(reservation) then release(reservation) end
  tallies.count_reservation_spread(reservation, false)
  for _, set in ipairs({ key('expiry'), key('finished') }) do redis.call('ZREM', set, id) end
  for _, part in ipairs({ 'reservations', 'finished', 'acknowledged' }) do
    redis.call('ZREM', node_key(node_id, part), id)
  end
  redis.call('HDEL', node_key(node_id, 'unnamed'), id)
  forget_doubt(reservation)
  if sandbox_id and redis.call('GET', key('sandbox:' .. sandbox_id)) == id then
    redis.call('DEL', key('sandbox:' .. sandbox_id))
  end
  if sandbox_id and redis.call('HGET', node_key(node_id, 'claims'), sandbox_id) == id then
    drop_claim(node_id, sandbox_id)
  end
  charge_back(reservation, -1)
  tallies.move_state(reservation.sequence, reservation.state, nil)
  redis.call('DEL', reservation_key(id))
end

-- Its sandbox id, unless a caller gave that to another reservation.
local function name_back(reservation, readable_ms, now)
  local id, node_id, sandbox_id = reservation.reservation_id, reservation.node_id, reservation.sandbox_id
  local other = redis.call('GET', key('sandbox:' .. sandbox_id))
  if other and other ~= id and redis.call('HGET', reservation_key(other), 'sandbox_told') == '1' then return end
  redis.call('SET', key('sandbox:' .. sandbox_id), id)
  if readable_ms then
    redis.call('PEXPIRE', key('sandbox:' .. sandbox_id), integer(readable_ms))
  else
    redis.call('HSET', node_key(node_id, 'claims'), sandbox_id, id)
  end
  if reservation.reason == 'gone' or reservation.reason == 'deleted' then return remember_ended({ sandbox_id }, now) end
  local told_at = reservation.sandbox_told == '1' and tonumber(reservation.confirmed_at_ms or '')
  -- A roster that lists it again would not know its spread key.
  if reservation.spread and reservation.reason == 'listed' then told_at = told_at or tonumber(reservation.finished_at_ms) end
  if not told_at or record_of(sandbox_id) then return end
  bind(node_id, sandbox_id, told_at, { reservation = reservation })
end

-- What counts with its spread key: the record of its sandbox, also one that a roster made anew, or the reservation itself.
local function spread_back(reservation, ended)
  local sandbox_id = reservation.sandbox_told ~= '0' and reservation.sandbox_id
  local record = sandbox_id and record_of(sandbox_id)
  reservation.spread_counted = nil
  local ran = reservation.state ~= 'cancelled' and reservation.state ~= 'expired'
  if ran and record and record.node_id == reservation.node_id then
    change_record(sandbox_id, record, { spread = reservation.spread })
  elseif not ended then
    tallies.count_reservation_spread(reservation, true)
  end
end

-- What an open one holds, and the lists it stands in.
local function open_again(reservation, now)
  local id, node_id = reservation.reservation_id, reservation.node_id
  local cpu, memory = tonumber(reservation.cpu_count), tonumber(reservation.memory_bytes)
  hold(reservation, cpu, memory, 1)
  save_rows()
  redis.call('ZADD', key('expiry'), reservation.expires_at_ms, id)
  redis.call('ZADD', node_key(node_id, 'reservations'), reservation.sequence, id)
  if reservation.restored then note_unnamed(reservation, cpu, memory, 1) end
  -- Discovery, too, may still be restoring.
  if row_of(node_id) then return end
  redis.call('ZADD', key('removed'), 'NX', integer(now + tonumber(redis.call('HGET', KEYS[1], 'report_ttl_ms'))), node_id)
end

-- The hold first and the reservation last: a slice that is stopped half-way is put in once more.
local function put_in(reservation, now)
  local id, node_id, sandbox_id = reservation.reservation_id, reservation.node_id, reservation.sandbox_id
  local ended = has_ended(reservation)
  local fields, readable_ms = {}, nil
  for name, value in pairs(reservation) do
    if not NOT_PUT_BACK[name] then fields[#fields + 1], fields[#fields + 2] = name, value end
  end
  if reservation.tombstone then
    redis.call('HSET', reservation_key(id), unpack(fields))
    redis.call('PEXPIRE', reservation_key(id), integer(math.max(1, reservation.expires_at_ms - now)))
    return
  end
  redis.call('ZADD', key('reservations'), reservation.sequence, id)
  if ended then
    local until_ms = tonumber(reservation.finished_at_ms) + readable_for(reservation)
    redis.call('ZADD', key('finished'), integer(until_ms), id)
    redis.call('ZADD', node_key(node_id, 'finished'), reservation.sequence, id)
    readable_ms = math.max(1, until_ms - now)
    doubt_end(reservation, reservation.state, reservation.reason)
    for _, name in ipairs({ 'held_cpu', 'held_memory', 'held_count' }) do
      fields[#fields + 1], fields[#fields + 2] = name, 0
    end
    if reservation.resources then fields[#fields + 1], fields[#fields + 2] = 'held_resources', '' end
  else
    reservation.restored = not sandbox_id and '1' or nil
    if reservation.restored then fields[#fields + 1], fields[#fields + 2] = 'restored', 1 end
    open_again(reservation, now)
  end
  if sandbox_id and (not ended or reservation.state == 'settled') then name_back(reservation, readable_ms, now) end
  charge_back(reservation, 1)
  tallies.move_state(reservation.sequence, nil, reservation.state)
  redis.call('HSET', reservation_key(id), unpack(fields))
  if reservation.spread then spread_back(reservation, ended) end
  if ended then redis.call('PEXPIRE', reservation_key(id), integer(readable_ms + RETENTION_MS)) end
  -- A replica that restores late may find a roster that lists the sandbox already.
  if not ended and sandbox_id and is_listed(node_id, sandbox_id) then
    finish_reservation(reservation, 'settled', 'listed', now)
  end
end
