-- @include "include/reservations"
-- @include "include/findings"
-- What a node's lists of reservations say, against the reservations themselves.

local function about_reservation(id)
  return as_table_of(reservation_key(id), 'node_id', 'state', 'reason', 'sandbox_id', 'cpu_count', 'memory_bytes',
    'held_cpu', 'held_memory', 'held_count', 'lifecycle', 'sequence', 'restored', 'resources', 'held_resources')
end

-- What the node's open reservations hold together: CPUs, bytes, sandboxes; those without a sandbox as `unnamed` has them.
local function recount_open(node_id, subject)
  local cpu, memory, count, nameless, further = 0, 0, 0, {}, {}
  for _, id in ipairs(redis.call('ZRANGE', node_key(node_id, 'reservations'), 0, -1)) do
    local reservation = about_reservation(id)
    if not is_open(reservation.state) or reservation.node_id ~= node_id then
      finding(subject, 'reservations', 'lists reservation ' .. id .. ' as open; it is ' .. shown(reservation.state)
        .. ' on ' .. shown(reservation.node_id))
    else
      local held_cpu, held_memory, held_count = held_by(reservation)
      cpu, memory, count = cpu + held_cpu, memory + held_memory, count + held_count
      resources.add_held(further, reservation)
      local sandbox_id = reservation.sandbox_id
      if not sandbox_id then
        local letter = reservation.lifecycle == 'heartbeat' and 'h' or 'e'
        nameless[id] = string.format('%s,%s,%d,%d,%d', reservation.restored and string.upper(letter) or letter,
          reservation.sequence or 'none', held_cpu, held_memory, held_count)
      end
      if sandbox_id and redis.call('HGET', node_key(node_id, 'claims'), sandbox_id) ~= id then
        finding(subject, 'claims', 'misses the claim of reservation ' .. id .. ' on sandbox ' .. sandbox_id)
      end
    end
  end
  return cpu, memory, count, nameless, further
end

-- The oldest of its finished ones: those that a purge has missed would stand here.
local function recount_finished_here(node_id, subject)
  for _, id in ipairs(redis.call('ZRANGE', node_key(node_id, 'finished'), 0, 99)) do
    local state, at = unpack(redis.call('HMGET', reservation_key(id), 'state', 'node_id'))
    if not state or at ~= node_id or is_open(state) then
      finding(subject, 'finished', 'reservation ' .. id .. ' is listed as finished here, and is ' .. shown(state or nil)
        .. ' on ' .. shown(at or nil))
    end
  end
end

local function recount_claims(node_id, subject)
  local cpu, memory, count, nameless, further = recount_open(node_id, subject)
  local claims = redis.call('HGETALL', node_key(node_id, 'claims'))
  for index = 1, #claims, 2 do
    local sandbox_id, id = claims[index], claims[index + 1]
    local reservation = about_reservation(id)
    local may_begin = redis.call('HEXISTS', node_key(node_id, 'doubts'), id) == 1
    if not (is_open(reservation.state) or may_begin) or reservation.node_id ~= node_id
      or reservation.sandbox_id ~= sandbox_id then
      finding(subject, 'claims', 'sandbox ' .. sandbox_id .. ' is claimed by reservation ' .. id .. ', which is '
        .. shown(reservation.state) .. ' with sandbox ' .. shown(reservation.sandbox_id))
    end
  end
  for _, id in ipairs(redis.call('ZRANGE', node_key(node_id, 'acknowledged'), 0, -1)) do
    local reservation = about_reservation(id)
    if reservation.state ~= 'settled' or reservation.reason ~= 'counters' or reservation.sandbox_id then
      finding(subject, 'acknowledged', 'reservation ' .. id .. ' is no longer one that counters settled unnamed: '
        .. shown(reservation.state))
    end
  end
  recount_finished_here(node_id, subject)
  return cpu, memory, count, nameless, further
end
