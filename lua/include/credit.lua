-- @include "include/reservations"
-- Reconciliation by counters: what a report's growth acknowledges of the reservations made before it.
local WALK_MAX = 1024
local CREDITED_SLICE = 50
local OPEN_FIELDS = {
  'state', 'lifecycle', 'cpu_count', 'memory_bytes', 'held_cpu', 'held_memory', 'held_count', 'sequence', 'sandbox_id',
  'restored', 'resources', 'held_resources',
}

-- The node's open reservations, oldest first, with what counters need to know of each.
local function open_reservations(node_id, before)
  local ids = redis.call('ZRANGEBYSCORE', node_key(node_id, 'reservations'), '-inf', '(' .. integer(before),
    'LIMIT', 0, WALK_MAX)
  local open = {}
  for _, id in ipairs(ids) do
    local found = redis.call('HMGET', reservation_key(id), unpack(OPEN_FIELDS))
    if found[1] then
      local cpu, memory = tonumber(found[3]), tonumber(found[4])
      open[#open + 1] = {
        reservation_id = id, node_id = node_id, state = found[1], lifecycle = found[2], cpu = cpu, memory = memory,
        held_cpu = tonumber(found[5] or cpu), held_memory = tonumber(found[6] or memory),
        held_count = tonumber(found[7] or 1), sequence = found[8], sandbox_id = found[9] or nil, restored = found[10],
        resources = found[11] or nil, held_resources = found[12] or nil,
      }
    end
  end
  return open
end

-- Others that may have caused the growth: each takes its size out of the credit; a size nobody
-- stated may be all of it.
local function reduce_credit(credit, cpu, memory)
  credit.count = credit.count - 1
  credit.cpu = cpu > 0 and credit.cpu - cpu or 0
  credit.memory = memory > 0 and credit.memory - memory or 0
end

-- Takes from one reservation what the credit covers; true when nothing is left held.
local function acknowledge(reservation, credit)
  local cpu, memory, count = reservation.held_cpu, reservation.held_memory, reservation.held_count
  if count > 0 then
    if credit.count <= 0 then return false end
    credit.count, count = credit.count - 1, 0
  end
  if cpu > 0 and cpu <= credit.cpu then credit.cpu, cpu = credit.cpu - cpu, 0 end
  if memory > 0 and memory <= credit.memory then credit.memory, memory = credit.memory - memory, 0 end
  if cpu ~= reservation.held_cpu or memory ~= reservation.held_memory or count ~= reservation.held_count then
    release(reservation)
    hold(reservation, cpu, memory, count)
    redis.call('HSET', reservation_key(reservation.reservation_id), 'held_cpu', integer(cpu),
      'held_memory', integer(memory), 'held_count', integer(count))
    if not reservation.sandbox_id then note_unnamed(reservation, cpu, memory, count) end
  end
  return cpu == 0 and memory == 0 and count == 0
end

-- Walks the open reservations once. `by_roster`: the node's reports name its sandboxes, so a
-- confirmed reservation is told by id and counters say nothing of it. One that was restored after a loss may have
-- entered the node's counters before its first report: it is held until it is told or due.
local function apply_credit(node_id, credit, generation, by_roster, now)
  if credit.count <= 0 and credit.cpu <= 0 and credit.memory <= 0 then return end
  -- More than one call may read: what the others explain is not known, so nobody is credited.
  if redis.call('ZCARD', node_key(node_id, 'reservations')) > WALK_MAX then return end
  local open, creditable = open_reservations(node_id, generation), {}
  for _, reservation in ipairs(open) do
    local counted = reservation.lifecycle == 'heartbeat' or (reservation.state == 'confirmed' and not by_roster)
    if counted and not reservation.restored then
      creditable[#creditable + 1] = reservation
    else
      reduce_credit(credit, reservation.cpu, reservation.memory)
    end
  end
  local settled = 0
  for _, reservation in ipairs(creditable) do
    if settled < CREDITED_SLICE and acknowledge(reservation, credit) then
      finish_reservation(read_reservation(reservation.reservation_id), 'settled', 'counters', now)
      settled = settled + 1
    end
  end
end

-- A report that lists nothing, or says nothing of its roster: what its counters have grown by since the last one,
-- less what others explain, settles the oldest.
local function credit_growth(node_id, known, figures, by_roster, now)
  local explained = as_table_of(node_key(node_id), 'explained_count', 'explained_cpu', 'explained_memory',
    'explained_any_cpu', 'explained_any_memory')
  local credit = {
    count = figures.create_successes - tonumber(known.create_successes) - (tonumber(explained.explained_count or '') or 0),
    cpu = figures.allocated_cpu - tonumber(known.allocated_cpu) - (tonumber(explained.explained_cpu or '') or 0),
    memory = figures.allocated_memory_bytes - tonumber(known.allocated_memory_bytes)
      - (tonumber(explained.explained_memory or '') or 0),
  }
  if explained.explained_any_cpu then credit.cpu = 0 end
  if explained.explained_any_memory then credit.memory = 0 end
  apply_credit(node_id, credit, tonumber(report_generation), by_roster, now)
end
