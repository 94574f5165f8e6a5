-- @include "include/shapes"
-- Why nothing was chosen: every discovered node once, under its first reason. Counted from the sets
-- and the shape's classes, never by a scan.
local TOLD_APART_MAX = 1000

-- How many nodes of the shape do not fit, by dimension, and how many are within their limits only without this request. The excluded ones count elsewhere.
local function count_unfit(request, context)
  local shape, memory_floor = context.shape, string.format('%.17g', 2 ^ 700)
  local cpu = redis.call('ZCOUNT', shape.key, string.format('%.17g', UNFIT_FLOOR), '(' .. memory_floor)
  local limit_floor = string.format('%.17g', OVER_LIMIT_FLOOR)
  local memory = redis.call('ZCOUNT', shape.key, memory_floor, '(' .. limit_floor)
  local limit = redis.call('ZCOUNT', shape.key, limit_floor, '+inf')
  for node_id in pairs(request.excluded) do
    local row = row_of(node_id)
    if row and holds_pool(shape.variant, row.pool) then
      local _, reason = score_of(row, shape, context.settings)
      if reason == 'insufficient_cpu' then cpu = cpu - 1 end
      if reason == 'insufficient_memory' then memory = memory - 1 end
      if reason == 'over_limit' then limit = limit - 1 end
    end
  end
  return cpu, memory, limit
end

local function refusal(request, context)
  local function count(set) return redis.call('ZCARD', key(set)) end
  if context.too_large then return { 'refused', integer(count('nodes')), {}, 'too_large', integer(count('nodes')) } end
  local reasons = {
    lingering = count('lingering'), over_limit = count('over_limit'), unhealthy = count('unhealthy'),
    not_ready = count('waiting'), excluded = 0,
  }
  if context.degraded then reasons.unhealthy = reasons.unhealthy - count('last_resort') - count('avoided_last_resort') end
  if context.set == 'ready' then reasons.not_ready = reasons.not_ready + count('candidates') - count('ready')
      + count('avoided') - count('avoided_ready')
  end
  for node_id in pairs(request.excluded) do
    local row = row_of(node_id)
    if row and holds_pool(context.variant, row.pool) then reasons.excluded = reasons.excluded + 1 end
  end
  local cpu, memory, limit = 0, 0, 0
  if context.admits or (request.creation and context.settings.limited) then
    cpu, memory, limit = count_unfit(request, context)
    reasons.over_limit = reasons.over_limit + limit
  end
  if context.admits then
    if cpu + memory > TOLD_APART_MAX then
      reasons.insufficient_capacity = cpu + memory
    else
      reasons.insufficient_cpu, reasons.insufficient_memory = cpu, memory
    end
  else
    -- Without admission only a total that the ledger could not hold keeps a candidate out.
    reasons.insufficient_memory = count(context.set) + count(context.second) - reasons.excluded - limit
  end
  local exceeded = {}
  if reasons.over_limit > 0 then
    -- @include "include/over_limit"
    exceeded = commonest_limit(context, request.excluded)
  end
  local reply = { 'refused', integer(count('nodes')), exceeded }
  for reason, nodes in pairs(reasons) do
    if nodes > 0 then
      reply[#reply + 1] = reason
      reply[#reply + 1] = integer(nodes)
    end
  end
  return reply
end
