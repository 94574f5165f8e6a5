-- @include "include/scores"
-- What keeps a node out for want of capacity, in figures: { what, current, pending, requested, maximum }.

-- `reason`: insufficient_<what>. {}: it is none of these, or the capacity is not known.
local function shortage_on(row, demand, reason)
  local name = string.match(reason, '^insufficient_(.+)$')
  if not name then return {} end
  local figures
  if name == 'cpu' then
    figures = { row.cpu_load, row.pending_cpu, demand.cpu, row.cpu_capacity }
  elseif name == 'memory' then
    figures = { row.memory_load, row.pending_memory, demand.memory, row.memory_capacity }
  else
    local one = row.resources and row.resources[name] or { total = 0, load = 0, pending = 0 }
    figures = { one.load, one.pending, demand.resources and demand.resources[name] or 0, one.total }
  end
  if figures[4] < 0 then return {} end
  for index = 1, 4 do figures[index] = integer(figures[index]) end
  return { name == 'cpu' and 'cpu_count' or name == 'memory' and 'memory_bytes' or name, unpack(figures) }
end

-- Of the further resource that most candidates lack (`further`: reason → nodes) on the one of them that has most of it
-- free, among those looked at.
local function commonest_shortage(further, request, context)
  local reason
  for name, nodes in pairs(further) do
    if not reason or nodes > further[reason] or (nodes == further[reason] and name < reason) then reason = name end
  end
  local name = string.match(reason, '^insufficient_(.+)$')
  local less = '(' .. integer(context.demand.resources[name])
  for _, node_id in ipairs(redis.call('ZREVRANGEBYSCORE', key('resource:' .. name), less, '-inf', 'LIMIT', 0, 32)) do
    local row = row_of(node_id)
    if row and node_pools.holds(context.variant, row.pool) and not request.excluded[node_id]
      and not is_masked(row, context.demand) and resources.lacking(row, context.demand.resources) == name then
      return shortage_on(row, context.demand, reason)
    end
  end
  return shortage_on({}, context.demand, reason)
end
