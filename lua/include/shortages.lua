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
    -- More than can be counted is held on it.
    if row.pending_memory + demand.memory > SAFE_INTEGER_MAX then figures[4] = SAFE_INTEGER_MAX end
  else
    local one = row.resources and row.resources[name] or { total = 0, load = 0, pending = 0 }
    figures = { one.load, one.pending, demand.resources and demand.resources[name] or 0, one.total }
  end
  if figures[4] < 0 then return {} end
  for index = 1, 4 do figures[index] = integer(figures[index]) end
  return { name == 'cpu' and 'cpu_count' or name == 'memory' and 'memory_bytes' or name, unpack(figures) }
end

-- Of a node that could not hold the request if it were empty.
local function excess_on(row, demand, settings)
  local by_cpu = not settings.cpu_unlimited and row.cpu_capacity >= 0 and row.cpu_capacity < demand.cpu
  return shortage_on(row, demand, by_cpu and 'insufficient_cpu' or 'insufficient_memory')
end
