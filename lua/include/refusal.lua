-- @include "include/choose_ranked"
-- Why nothing was chosen: every discovered node once, under its first reason. Counted from sets and rows, never by a scan.
local TOLD_APART_MAX = 1000

local function pools_of(context)
  local pools = node_pools.candidates(context.variant).pools
  return context.avoiding and pools .. string.upper(pools) or pools
end

-- What keeps most nodes out, in figures: { what, current, pending, requested, maximum }; of equally many the first of these.
-- `kept`: how many each keeps out.
local function figures_of(request, context, kept)
  local told, most, further = {}, 0, 0
  local function tell(nodes, figures)
    local found = nodes > most and figures() or {}
    if found[1] then told, most = found, nodes end
  end
  for _, nodes in pairs(kept.further) do further = math.max(further, nodes) end
  tell(kept.over_limit, function()
    -- @inline "include/over_limit"
    return commonest_limit(context, request.excluded, kept.over)
  end)
  tell(kept.spread, function() return context.spread.figures(context.spread.fewest) end)
  -- @inline "include/commonest_shortage"
  tell(further, function() return commonest_shortage(kept.further, request, context) end)
  local function of_capacity(what)
    return function()
      local classes = classes_for(pools_of(context), nil, context.demand, 'fit', context.settings)
      return capacity_shortage(what, classes, request, context)
    end
  end
  if kept.together or kept.cpu + kept.memory > TOLD_APART_MAX then
    tell(kept.cpu + kept.memory, of_capacity(nil))
  else
    tell(kept.cpu, of_capacity('cpu'))
    tell(kept.memory, of_capacity('memory'))
  end
  return told
end

local function refusal(request, context)
  local function count(set) return redis.call('ZCARD', key(set)) end
  if context.too_large then
    return { 'refused', integer(count('nodes')), context.too_large, 'too_large', integer(count('nodes')) }
  end
  local reasons = {
    lingering = count('lingering'), over_limit = count('over_limit'), unhealthy = count('unhealthy'),
    not_ready = count('waiting'), excluded = 0,
  }
  local matching = 0
  if context.degraded then reasons.unhealthy = reasons.unhealthy - count('last_resort') - count('avoided_last_resort') end
  if context.set == 'ready' then reasons.not_ready = reasons.not_ready + count('candidates') - count('ready')
      + count('avoided') - count('avoided_ready')
  end
  for node_id in pairs(request.excluded) do
    local row = row_of(node_id)
    if row and node_pools.holds(context.variant, row.pool) then
      reasons.excluded = reasons.excluded + 1
      if request.matches and request.matches[row.labels] then matching = matching - 1 end
    end
  end
  local left = count(context.set) + count(context.second) - reasons.excluded
  if request.matches then
    for id in pairs(request.matches) do
      matching = matching + count(context.set .. ':' .. id) + count(context.second .. ':' .. id)
    end
    left, reasons.label = matching, left - matching
  end
  if context.spread then
    local rest = context.spread.narrow(left)
    left, reasons.spread = rest, left - rest
  end
  local cpu, memory, limit, over, together, further = 0, 0, 0, {}, false, nil
  if left == 0 and context.spread then
    -- Nobody is left to be told apart.
  elseif context.admits or (request.creation and (context.settings.limited or context.demand.resources)) then
    -- @inline "include/tally"
    cpu, memory, limit, over, together, further = tally(request, context, left)
    reasons.over_limit = reasons.over_limit + limit
  end
  for reason, nodes in pairs(further or {}) do reasons[reason], left = nodes, left - nodes end
  if not context.admits then
    -- Without admission only a total that the ledger could not hold keeps a candidate out.
    reasons.insufficient_memory = left - limit
  elseif together or cpu + memory > TOLD_APART_MAX then
    reasons.insufficient_capacity = cpu + memory
  else
    reasons.insufficient_cpu, reasons.insufficient_memory = cpu, memory
  end
  local exceeded = figures_of(request, context, {
    over_limit = reasons.over_limit, spread = reasons.spread or 0, over = over, further = further or {},
    cpu = context.admits and cpu or 0, memory = context.admits and memory or 0, together = together,
  })
  if context.spread then context.spread.restore() end
  local reply = { 'refused', integer(count('nodes')), exceeded }
  for reason, nodes in pairs(reasons) do
    if nodes > 0 then
      reply[#reply + 1] = reason
      reply[#reply + 1] = integer(nodes)
    end
  end
  return reply
end

-- The reason of a refusal that keeps most nodes out.
local function commonest_reason(reply)
  local commonest, most = 'no_candidates', 0
  for index = 4, #reply, 2 do
    local reason, nodes = reply[index], tonumber(reply[index + 1])
    if nodes > most or (nodes == most and reason < commonest) then commonest, most = reason, nodes end
  end
  return commonest
end
