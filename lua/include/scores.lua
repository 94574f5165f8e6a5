-- @include "include/rows"
-- @include "include/pools"
-- The rank of a node for a demand, as one number:
--   projected pressure, by class: known fit < unknown fit < avoided < unfit for CPU < unfit for memory < over a limit.
-- Classes are scaled by powers of two, which keeps pressures exact within a class: equal ones stay equal.
local UNKNOWN = 2 ^ 400
local AVOIDED = 2 ^ 430
local AVOIDED_UNKNOWN = 2 ^ 495
local UNFIT_CPU = 2 ^ 600
local UNFIT_MEMORY = 2 ^ 800
local UNFIT_RESOURCE = 2 ^ 880
local OVER_LIMIT = 2 ^ 960
local SAFE_INTEGER_MAX = 2 ^ 53 - 1
local MIB = 1024 * 1024

-- What a request asks of a node; 0: not stated. `variant` says who the candidates are (include/pools). `matches`: the label
-- sets with what is required, nil when nothing is.
local function demand_of(request, variant)
  local creation = request.creation
  return {
    creation = creation, variant = variant, cpu = creation and request.cpu or 0,
    memory = creation and request.memory_mb * MIB or 0, matches = request.matches,
    resources = request.needed, spares = request.spares,
  }
end

-- Whether a node has something scarce that is to be spared.
local function is_spared(row, spares)
  if spares.sets[row.labels] then return true end
  for name, one in pairs(row.resources or {}) do
    if spares.names[name] and one.total > 0 then return true end
  end
  return false
end

local function pressure_of(load, capacity)
  if capacity < 0 then return nil end
  if capacity == 0 then return load == 0 and 0 or 2 ^ 60 end
  return load / capacity
end

local function overfull(load, requested, capacity)
  if requested > 0 then return load + requested > capacity end
  return load >= capacity
end

-- Whether a creation would bring the node above a limit that counts or sums, with what is pending.
local function exceeds_bounds(row, demand)
  return row.bounded and (
    (row.cpu_most >= 0 and row.cpu_load + row.pending_cpu + demand.cpu > row.cpu_most)
    or (row.memory_most >= 0 and row.memory_load + row.pending_memory + demand.memory > row.memory_most)
    or (row.count_most >= 0 and row.starting + row.running + row.pending_count + 1 > row.count_most))
end

-- Projected load by capacity, the larger of the known dimensions; 0 where none is known.
local function pressure_on(row, demand)
  local cpu = pressure_of(row.cpu_load + row.pending_cpu + demand.cpu, row.cpu_capacity)
  local memory = pressure_of(row.memory_load + row.pending_memory + demand.memory, row.memory_capacity)
  return math.max(cpu or 0, memory or 0)
end

-- The score of a row for a demand, and why the node does not fit (nil when it does).
local function score_of(row, demand, settings)
  local cpu_load = row.cpu_load + row.pending_cpu
  local memory_load = row.memory_load + row.pending_memory
  local cpu = pressure_of(cpu_load + demand.cpu, row.cpu_capacity)
  local memory = pressure_of(memory_load + demand.memory, row.memory_capacity)
  local pressure = math.max(cpu or 0, memory or 0)
  if demand.creation then
    if exceeds_bounds(row, demand) then return math.max(pressure, 2 ^ -60) * OVER_LIMIT, 'over_limit' end
    if cpu and not settings.cpu_unlimited and overfull(cpu_load, demand.cpu, row.cpu_capacity) then
      return math.max(pressure, 2 ^ -60) * UNFIT_CPU, 'insufficient_cpu'
    end
    if (memory and not settings.memory_unlimited and overfull(memory_load, demand.memory, row.memory_capacity))
      or row.pending_memory + demand.memory > SAFE_INTEGER_MAX then
      return math.max(pressure, 2 ^ -60) * UNFIT_MEMORY, 'insufficient_memory'
    end
    local lacking = demand.resources and resources.lacking(row, demand.resources)
    if lacking then return math.max(pressure, 2 ^ -60) * UNFIT_RESOURCE, 'insufficient_' .. lacking end
  end
  local unknown = row.pool == node_pools.UNKNOWN or not (cpu or memory)
    or (not cpu and row.pending_cpu + demand.cpu > 0)
    or (not memory and row.pending_memory + demand.memory > 0)
  if row.avoided then return unknown and AVOIDED_UNKNOWN or math.max(pressure, 2 ^ -25) * AVOIDED, nil end
  return unknown and UNKNOWN or pressure, nil
end

-- Why a creation may not go to this node: its limits and further resources always count, its capacity where admission
-- applies.
local function obstacle(row, demand, settings, admits)
  local _, reason = score_of(row, demand, settings)
  if admits or reason == 'over_limit' then return reason end
  local lacking = demand.resources and resources.lacking(row, demand.resources)
  return lacking and 'insufficient_' .. lacking or nil
end
