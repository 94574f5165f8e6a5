-- @include "include/keys"
-- @include "include/pools"
-- @include "include/strategies"
-- @include "include/limits"
-- From a node's figures to its row: effective capacities, loads, and the pool it belongs to.
-- @include "include/figure_names"

-- Settings that turn figures into a row.
local function read_observation_settings()
  local found = redis.call('HMGET', KEYS[1], 'overcommit_cpu', 'overcommit_memory', 'limits', 'strategy', 'admission',
    'resources', unpack(LIMITS))
  local limits, open = {}, 0
  for index = 1, #LIMITS do limits[index] = found[index + 6] or nil end
  local admits = strategy_traits(found[4]).admits or found[5] == 'always'
  if not admits or found[1] == 'unlimited' then open = open + 1 end
  if not admits or found[2] == 'unlimited' then open = open + 2 end
  return {
    overcommit_cpu = found[1], overcommit_memory = found[2], limits = limits, count_pending = found[3] ~= 'reported',
    open = open, resources = resources.configured(found[6] or ''),
  }
end

local function bound_row(row, figures, settings)
  row.open = settings.open
  if not settings.count_pending then
    row.bounded = nil
    return
  end
  -- @inline "include/unreported"
  set_bounds(row, settings.limits, figures or unreported_figures())
end

local observe
do
  -- floor(advertised × per-mille), -1 when nothing is advertised. Exact beyond 2^53 / 1000.
  local function effective_capacity(advertised, per_mille)
    if advertised <= 0 then return -1 end
    if per_mille == 'unlimited' then return advertised end
    local factor = tonumber(per_mille)
    local thousands = math.floor(advertised / 1000)
    return math.min(thousands * factor + math.floor((advertised - thousands * 1000) * factor / 1000), 2 ^ 53 - 1)
  end

  -- `figures` nil: the node has not reported (or its report was forgotten). What delete events ended and the
  -- report still counts is taken off its load: `figures.lowered_cpu`, `figures.lowered_memory`.
  function observe(row, discovery, status, figures, stale, settings)
    local over_limit
    if figures then
      row.cpu_capacity = effective_capacity(figures.cpu_count, settings.overcommit_cpu)
      row.memory_capacity = effective_capacity(figures.memory_total_bytes, settings.overcommit_memory)
      row.cpu_load = math.max(0, figures.allocated_cpu + figures.paused_allocated_cpu - figures.lowered_cpu)
      row.memory_load = math.max(0, figures.allocated_memory_bytes + figures.paused_allocated_memory_bytes
        - figures.lowered_memory)
      row.starting, row.running, row.paused =
        figures.sandbox_starting_count, figures.sandbox_count, figures.paused_sandbox_count
      over_limit = exceeded_limit(settings.limits, figures)
    else
      row.cpu_capacity, row.memory_capacity, row.cpu_load, row.memory_load = -1, -1, 0, 0
      row.starting, row.running, row.paused = 0, 0, 0
    end
    row.resources = resources.observed(row.resources, settings.resources, figures and figures.resources)
    bound_row(row, figures, settings)
    row.pool = node_pools.of(discovery, status, over_limit, stale)
    return over_limit
  end
end
