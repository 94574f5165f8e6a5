-- @include "include/holding"
-- What the open reservations on a node's list hold. What is not open there any more, because a script was stopped,
-- leaves the list.
local function held_by_open(node_id)
  local cpu, memory, count, further = 0, 0, 0, {}
  for _, id in ipairs(redis.call('ZRANGE', node_key(node_id, 'reservations'), 0, -1)) do
    local open = as_table_of(reservation_key(id), 'state', 'node_id', 'cpu_count', 'memory_bytes', 'held_cpu',
      'held_memory', 'held_count', 'resources', 'held_resources')
    if open.node_id == node_id and (open.state == 'pending' or open.state == 'confirmed') then
      local held_cpu, held_memory, held_count = held_by(open)
      cpu, memory, count = cpu + held_cpu, memory + held_memory, count + held_count
      resources.add_held(further, open)
    else
      redis.call('ZREM', node_key(node_id, 'reservations'), id)
      redis.call('HDEL', node_key(node_id, 'unnamed'), id)
    end
  end
  return cpu, memory, count, further
end

-- Counts what is pending on a node anew.
local function recount_pending(node_id)
  local row, account = row_of(node_id), account_of(node_id)
  if not row or not account then return end
  local cpu, memory, count, further = held_by_open(node_id)
  cpu, memory, count = cpu - account.discount_cpu, memory - account.discount_memory, count - account.discount_count
  local wrong = row.pending_cpu ~= cpu or row.pending_memory ~= memory or row.pending_count ~= count
  row.pending_cpu, row.pending_memory, row.pending_count = cpu, memory, count
  wrong = resources.set_pending(row, further) or wrong
  if wrong then
    weigh_again(node_id)
    redis.call('HINCRBY', key('stats'), 'rows_recounted', 1)
    tallies.distrust()
  end
end
