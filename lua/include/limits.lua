-- @include "include/keys"
-- node_resource_limit: nine checks, each "strictly above" its limit. Ratios truncate to whole percent
-- and are skipped where the capacity is not known. A creation is held to those that count or sum with what is
-- pending and with itself: set_bounds writes into the row what that leaves.
-- @include "include/limit_names"

-- floor(part * 100 / whole), exact although part * 100 may pass 2^53.
local function percent(part, whole)
  if whole == 0 then return 0 end
  local hundreds = math.floor(part / whole)
  local rest = part - hundreds * whole
  local low, high = 0, 100
  while low < high do
    local middle = math.floor((low + high + 1) / 2)
    local quotient = math.floor(whole / 100)
    local remainder = whole - quotient * 100
    local needed = middle * quotient + math.ceil(middle * remainder / 100)
    if needed <= rest then low = middle else high = middle - 1 end
  end
  return hundreds * 100 + low
end

-- The name of the first limit a node's figures exceed, or nil. `figures` holds numbers by field name.
local function exceeded_limit(limits, figures)
  local values = {
    figures.sandbox_count, figures.sandbox_starting_count, figures.cpu_percent,
    percent(figures.allocated_cpu, figures.cpu_count),
    percent(figures.memory_used_bytes, figures.memory_total_bytes),
    percent(figures.allocated_memory_bytes, figures.memory_total_bytes),
    figures.sandbox_count + figures.paused_sandbox_count,
    figures.allocated_cpu + figures.paused_allocated_cpu,
    figures.allocated_memory_bytes + figures.paused_allocated_memory_bytes,
  }
  for index, name in ipairs(LIMITS) do
    local limit = limits[index] and tonumber(limits[index])
    if limit and values[index] > limit then return name end
  end
  return nil
end

local set_bounds
do
  -- The most that a truncated percentage of `whole` allows: the largest part whose percentage is not above the limit.
  local function most_of(whole, limit)
    if whole == 0 then return nil end
    local hundreds = math.floor(whole / 100)
    local most = (limit + 1) * hundreds + math.ceil((limit + 1) * (whole - hundreds * 100) / 100) - 1
    return math.min(most, 2 ^ 53 - 1)
  end

  local function lesser(one, other)
    return one and other and math.min(one, other) or one or other
  end

  -- Writes into a row what a creation may bring the node to. Starting sandboxes are none of sandbox_count, and will be.
  function set_bounds(row, limits, figures)
    local limit = {}
    for index = 1, #LIMITS do limit[index] = tonumber(limits[index] or '') end
    local cpu = limit[4] and most_of(figures.cpu_count, limit[4])
    cpu = lesser(limit[8], cpu and cpu + figures.paused_allocated_cpu)
    local memory = limit[6] and most_of(figures.memory_total_bytes, limit[6])
    memory = lesser(limit[9], memory and memory + figures.paused_allocated_memory_bytes)
    local count = lesser(limit[1], limit[2] and limit[2] + figures.sandbox_count)
    count = lesser(count, limit[7] and limit[7] - figures.paused_sandbox_count)
    row.bounded = (cpu or memory or count) ~= nil or nil
    row.cpu_most, row.memory_most, row.count_most = cpu or -1, memory or -1, count and math.max(0, count) or -1
  end
end
