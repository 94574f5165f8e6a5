-- Stands inside include/rows: a row that cannot be read is made anew from the node's hash and its open reservations.
-- @include "include/figures"
-- @include "include/capacities"
-- @include "include/lost_place"

-- What the open reservations hold, less what the load already holds of them.
local function held_on(node_id)
  local cpu, memory, count, further = 0, 0, 0, {}
  for _, id in ipairs(redis.call('ZRANGE', node_key(node_id, 'reservations'), 0, -1)) do
    local found = redis.call('HMGET', reservation_key(id), 'state', 'held_cpu', 'held_memory', 'held_count', 'cpu_count',
      'memory_bytes', 'resources', 'held_resources')
    if found[1] == 'pending' or found[1] == 'confirmed' then
      cpu, memory = cpu + tonumber(found[2] or found[5]), memory + tonumber(found[3] or found[6])
      count = count + tonumber(found[4] or 1)
      resources.add_held(further, { resources = found[7] or nil, held_resources = found[8] or nil })
    end
  end
  local discount = redis.call('HMGET', node_key(node_id), 'discount_cpu', 'discount_memory', 'discount_count')
  return math.max(0, cpu - tonumber(discount[1] or 0)), math.max(0, memory - tonumber(discount[2] or 0)),
    math.max(0, count - tonumber(discount[3] or 0)), further
end

-- Nil for a node that is not listed.
local function rebuild_row(node_id)
  for _, name in ipairs(node_pools.all_parts()) do redis.call('ZREM', key(name), node_id) end
  for _, cpu in ipairs(redis.call('ZRANGE', key('capacities'), 0, -1)) do leave_capacity(node_id, tonumber(cpu)) end
  forget_place(node_id)
  redis.call('HINCRBY', key('stats'), 'rows_rebuilt', 1)
  local known = redis.call('HMGET', node_key(node_id), 'discovery', 'status', 'last_seen_ms', 'waiting', 'roster_whole',
    'deleted_cpu', 'deleted_memory', 'label_set', 'resources_reported', unpack(FIGURES))
  if known[1] ~= 'active' and known[1] ~= 'lingering' then return nil end
  local figures
  if known[3] and known[10] then
    local whole = tonumber(known[5] or 0)
    figures = { lowered_cpu = whole * tonumber(known[6] or 0), lowered_memory = whole * tonumber(known[7] or 0) }
    figures.resources = known[9] or nil
    for index, name in ipairs(FIGURES) do figures[name] = tonumber(known[index + 9] or 0) end
  end
  local row, silent = {}, redis.call('ZSCORE', key('silent'), node_id) ~= false
  observe(row, known[1], known[2] or nil, figures, silent, read_observation_settings())
  local avoided_until = redis.call('ZSCORE', key('avoided_until'), node_id)
  row.avoided = avoided_until and tonumber(avoided_until) < math.huge or nil
  row.labels = known[8] and known[8] ~= '' and redis.call('HEXISTS', key('label_sets'), known[8]) == 1 and known[8] or nil
  if known[4] then row.pool = node_pools.while_waiting(row.pool) end
  local further
  row.pending_cpu, row.pending_memory, row.pending_count, further = held_on(node_id)
  resources.set_pending(row, further)
  return row
end
