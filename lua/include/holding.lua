-- @include "include/discount"
-- What a reservation keeps from others: capacity in the row of its node, as long as it is held.
-- `held_*` fields are written only once a report accounts for a part; without them all of it is held. Further resources are
-- held whole until the end; `held_resources` is written then.
local function is_open(state)
  return state == 'pending' or state == 'confirmed'
end

local function hold(reservation, cpu, memory, count)
  reservation.held_cpu, reservation.held_memory, reservation.held_count = cpu, memory, count
  reservation.held_resources = nil
  weigh_again(reservation.node_id)
  local row = row_of(reservation.node_id)
  if not row then return end
  if reservation.resources then resources.hold(row, resources.amounts(reservation.resources), 1) end
  row.pending_cpu = row.pending_cpu + cpu
  row.pending_memory = row.pending_memory + memory
  row.pending_count = row.pending_count + count
end

local function held_by(reservation)
  return tonumber(reservation.held_cpu or reservation.cpu_count),
    tonumber(reservation.held_memory or reservation.memory_bytes), tonumber(reservation.held_count or 1)
end

local function release(reservation)
  weigh_again(reservation.node_id)
  local row = row_of(reservation.node_id)
  if row then
    local cpu, memory, count = held_by(reservation)
    row.pending_cpu = row.pending_cpu - cpu
    row.pending_memory = row.pending_memory - memory
    row.pending_count = row.pending_count - count
    if reservation.resources and not reservation.held_resources then
      resources.hold(row, resources.amounts(reservation.resources), -1)
    end
  end
  reservation.held_resources = ''
  reservation.held_cpu, reservation.held_memory, reservation.held_count = 0, 0, 0
end

-- Whether a node left discovery and did not come back in time, and since when it counts as gone. One
-- whose absence was worked off already has no entry in `removed` any more, but its hash still tells.
local function is_evicted(node_id, now)
  if row_of(node_id) then return false end
  local at = tonumber(redis.call('ZSCORE', key('removed'), node_id) or '')
  local left_at = not at and redis.call('HGET', node_key(node_id), 'removed_at_ms')
  if left_at then at = tonumber(left_at) + tonumber(redis.call('HGET', KEYS[1], 'report_ttl_ms')) end
  return not at or at <= now, at or 0
end
