-- @include "include/pools"
-- @include "include/scores"
-- How a node looks at this moment: derived status, and why it would not be chosen.

-- A silent node that drains is shown as unhealthy, although placements still treat it as draining.
local function derived_status(known, now, report_ttl_ms)
  local last_seen_ms = tonumber(known.last_seen_ms or '')
  if last_seen_ms and now - last_seen_ms > report_ttl_ms then return 'unhealthy' end
  if known.discovery == 'lingering' then return 'lingering' end
  return known.status or 'connecting'
end

-- The first reason against a node; '' when it may be chosen for `demand`.
local function standing(row, known, demand, settings, now)
  local last_seen_ms = tonumber(known.last_seen_ms or '')
  local stale = last_seen_ms ~= nil and now - last_seen_ms > settings.report_ttl_ms
  local pool = node_pools.facts(row.pool)
  if stale and pool.silent then return 'unhealthy' end
  if not node_pools.holds(settings.traits.candidates, row.pool) then return pool.against end
  local reason = demand.creation and obstacle(row, demand, settings, settings.admits)
  if not reason and row.avoided and now < (tonumber(known.avoided_until_ms or '') or 0) then reason = 'avoided' end
  return reason or ''
end

-- Projected load by capacity in each dimension; '' where the capacity is not known.
local function pressures(row, demand)
  local cpu = pressure_of(row.cpu_load + row.pending_cpu + demand.cpu, row.cpu_capacity)
  local memory = pressure_of(row.memory_load + row.pending_memory + demand.memory, row.memory_capacity)
  return cpu and string.format('%.17g', cpu) or '', memory and string.format('%.17g', memory) or ''
end
