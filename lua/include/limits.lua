-- @include "include/keys"
-- node_resource_limit: nine checks, each "strictly above" its limit. Ratios truncate to whole percent
-- and are skipped where the capacity is not known.
local LIMITS = {
  'max_sandbox_count', 'max_sandbox_starting_count', 'max_cpu_used_percent', 'max_cpu_allocated_percent',
  'max_memory_used_percent', 'max_memory_allocated_percent', 'max_sandbox_count_including_paused',
  'max_allocated_cpu_including_paused', 'max_allocated_memory_bytes_including_paused',
}

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
