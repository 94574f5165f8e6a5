-- inline/warm.lua: affinity. Of the nodes that hold the request's image or template, known to have the capacity, the best
-- one is chosen before any other, unless it is fuller than the least loaded candidate by more than affinity.slack. With
-- `fill_to` the fullest of them within that share comes first: being fuller is then no fault. Holding it are the nodes
-- that were given it last (include/warm_keys), the latest first, and those that offer every artifact that the request
-- names; 20 are looked at.
-- Reads: context, request
-- Sets: ROUNDING, WARM_MOST, choose_warm, warm_candidates, warm_nodes
-- @include "include/ranking"
-- @include "include/acceptance"
local WARM_MOST = 20
-- Sums of fractions are off by less than that.
local ROUNDING = 2 ^ -40

local function warm_nodes()
  local name = key('warm:' .. request.origin)
  local listed = redis.call('ZREVRANGEBYSCORE', name, '+inf', '-inf', 'LIMIT', '0', integer(WARM_MOST))
  if #listed < WARM_MOST and request.locality[1] then
    -- @inline "inline/offering"
    add_offering(listed, WARM_MOST)
  end
  return listed
end

-- Those of them that may be chosen, by id, with their pressure.
local function warm_candidates()
  local fitting, pressures = {}, {}
  for _, node_id in ipairs(warm_nodes()) do
    local row = row_of(node_id)
    if row and not row.avoided and node_pools.holds(context.variant, row.pool)
      and is_acceptable(node_id, request, context) then
      local score, reason = score_of(row, context.demand, context.settings)
      if not reason and score < UNKNOWN then fitting[#fitting + 1], pressures[node_id] = node_id, score end
    end
  end
  table.sort(fitting)
  return fitting, pressures
end

-- The node, or nil. `rank` chooses among all candidates.
local function choose_warm(rank, counter)
  local fitting, pressures = warm_candidates()
  if not fitting[1] then return rank(request, context, counter) end
  local function best_within(share)
    local within = {}
    for _, node_id in ipairs(fitting) do
      if pressures[node_id] <= share then within[#within + 1] = node_id end
    end
    return within[1] and rank_list(within, context, counter)
  end
  local settings, fill_to = context.settings, context.settings.fill_to
  local chosen = fill_to > 0 and best_within(fill_to)
  if not chosen then
    settings.fill_to = 0
    local least = rank(request, context, counter)
    local row = least and row_of(least)
    -- A search that was cut short knows of none that is less loaded; a node without a row is an entry to be put right.
    if row or not least then
      chosen = best_within(row and pressure_on(row, context.demand) + settings.slack + ROUNDING or math.huge)
    end
    settings.fill_to = fill_to
    if not chosen then return fill_to > 0 and rank(request, context, counter) or least end
  end
  context.found, context.unproven, context.warm = nil, nil, true
  return chosen
end
