-- @include "include/discount"
-- The capacity that a reservation holds: it counts as pending in the row of its node until it is released.
-- `held_*` fields are written only once a report accounts for a part; without them all of it is held. Further resources are
-- held whole until the end; `held_resources` is written then.
local function is_open(state)
  return state == 'pending' or state == 'confirmed'
end

local recount = {}

-- Further resources that the count of a node found so far. Nil: a script was stopped within a slice, it is to begin anew.
function recount.resources(node_id, account)
  if account.recount_to == 0 then return {} end
  local text = redis.call('HGET', node_key(node_id), 'recount_resources')
  local to, amounts = string.match(text or '', '^(%d+) (.*)$')
  if not to then return {} end
  return tonumber(to) == account.recount_to and (resources.amounts(amounts) or {}) or nil
end

function recount.note_resources(node_id, account, amounts)
  local text = integer(account.recount_to) .. ' ' .. resources.written(amounts)
  redis.call('HSET', node_key(node_id), 'recount_resources', text)
end

-- What is held (`sign` 1) or released (-1) of a reservation that a count of its node has passed changes what it found.
function recount.follow(reservation, sign, cpu, memory, count, amounts)
  local node_id = reservation.node_id
  local account = account_of(node_id)
  if not account or account.recount_to == 0 or tonumber(reservation.sequence) > account.recount_to then return end
  account.recount_cpu, account.recount_memory = account.recount_cpu + sign * cpu, account.recount_memory + sign * memory
  account.recount_count = account.recount_count + sign * count
  local further = amounts and recount.resources(node_id, account)
  if further then
    for name, amount in pairs(amounts) do further[name] = (further[name] or 0) + sign * amount end
    recount.note_resources(node_id, account, further)
  end
end

local function hold(reservation, cpu, memory, count)
  reservation.held_cpu, reservation.held_memory, reservation.held_count = cpu, memory, count
  reservation.held_resources = nil
  weigh_again(reservation.node_id)
  local amounts = reservation.resources and resources.amounts(reservation.resources)
  recount.follow(reservation, 1, cpu, memory, count, amounts)
  local row = row_of(reservation.node_id)
  if not row then return end
  if amounts then resources.hold(row, amounts, 1) end
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
  local cpu, memory, count = held_by(reservation)
  local further = reservation.resources and not reservation.held_resources
  local amounts = further and resources.amounts(reservation.resources) or nil
  recount.follow(reservation, -1, cpu, memory, count, amounts)
  local row = row_of(reservation.node_id)
  if row then
    row.pending_cpu = row.pending_cpu - cpu
    row.pending_memory = row.pending_memory - memory
    row.pending_count = row.pending_count - count
    if amounts then resources.hold(row, amounts, -1) end
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
