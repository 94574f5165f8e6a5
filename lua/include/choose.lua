-- @include "include/choose_ranked"
-- @include "include/choose_rotating"
-- @include "include/choose_located"
-- @include "include/choose_grouped"
-- @include "include/locality"
-- The one decision: which node. Reads, keeps derived indexes current, reserves nothing.
--
--   candidates (the last resort only when none is fresh)
--     → locality (advisory) → the strategy → node, cursor to move, what happens to its group

-- Whose turn it may be: the set that rotation walks, and the shape variant that ranking reads.
local function candidate_pool(settings)
  if settings.strategy == 'grouped_round_robin' then
    return { set = 'ready', variant = 'ready', pools = POOLS.ready, degraded = false }
  end
  if redis.call('ZCARD', key('candidates')) == 0 and redis.call('ZCARD', key('last_resort')) > 0
    and redis.call('ZCARD', key('over_limit')) == 0 and redis.call('ZCARD', key('waiting')) == 0 then
    return { set = 'last_resort', variant = 'degraded', pools = POOLS.degraded, degraded = true }
  end
  return { set = 'candidates', variant = 'any', pools = POOLS.any, degraded = false }
end

-- Whether a candidate may take the request, for strategies that do not rank.
local function acceptance(request, context)
  local settings = context.settings
  if not request.creation then
    return function(node_id) return not request.excluded[node_id] end
  end
  return function(node_id)
    if request.excluded[node_id] then return false end
    local row = row_of(node_id)
    if context.admits then
      local _, reason = score_of(row, context.shape, settings)
      return reason == nil
    end
    return row.pending_memory + context.shape.memory <= SAFE_INTEGER_MAX
  end
end

-- The candidates that hold most of the artifacts the request needs, in id order; nil: no preference.
local function located(request, context)
  if not context.settings.locality or #request.locality == 0 then return nil end
  local best = best_located(request.locality, function(node_id)
    local row = row_of(node_id)
    if not row or not context.pool.pools[row.pool] or not context.accepts(node_id) then return nil end
    local about = redis.call('HMGET', node_key(node_id), 'cluster_id', 'p2p_backend')
    return about[1], about[2]
  end)
  if not best or #best == 0 then return nil end
  table.sort(best)
  return best
end

-- How the strategies rotate and rank, over all candidates or over the located few.
local function bind_strategies(request, context)
  local few = located(request, context)
  local set, cursors = context.pool.set, context.cursors
  if few then
    local member = {}
    for _, node_id in ipairs(few) do member[node_id] = true end
    local accepts = context.accepts
    context.accepts = function(node_id) return member[node_id] and accepts(node_id) end
  end
  context.rank = function()
    local counter = tonumber(cursors[request.creation and 'ties' or 'ordinary_ties'] or '') or 0
    if few then return rank_list(few, context.shape, context.settings, counter) end
    local node_id, score = choose_ranked(context.shape, request.excluded, counter)
    if not node_id or (score >= UNFIT_FLOOR and context.admits) then return nil end
    return node_id
  end
  context.rotate = function(name)
    if few then return rotate_list(few, cursors[name]) end
    local node_id = rotate(set, cursors[name], context.accepts)
    if not node_id and context.admits and request.creation then node_id = context.rank() end
    return node_id
  end
  context.random = function()
    if few then return few[1 + request.entropy % #few] end
    local node_id = pick_random(set, request.entropy, request.excluded)
    if not node_id or context.accepts(node_id) then return node_id end
    node_id = rotate(set, node_id, context.accepts)
    if not node_id and context.admits and request.creation then node_id = context.rank() end
    return node_id
  end
end

-- False when a slice of index building was worked off and the caller must call again. Else true,
-- with the node (nil: refused), the cursor it moves, and what happens to its group, in `context`.
local function choose(request, context)
  local settings = context.settings
  context.pool = candidate_pool(settings)
  context.admits = settings.admits and request.creation
  context.shape = shape_of(request.creation, request.cpu, request.memory_mb, context.pool.variant)
  local ranks = settings.strategy == 'least_loaded' or context.admits
    or (settings.strategy == 'grouped_round_robin' and settings.group_placement == 'least_loaded' and request.creation)
  if ranks and not open_shape(context.shape, settings, context.now, context.cursors.journal_base) then return false end
  context.ranks = ranks
  context.accepts = acceptance(request, context)
  bind_strategies(request, context)
  if settings.strategy == 'least_loaded' then
    context.node_id, context.moves = context.rank(), request.creation and 'ties' or 'ordinary_ties'
  elseif settings.strategy == 'grouped_round_robin' then
    context.node_id, context.moves, context.group = choose_grouped(request, context)
  elseif settings.strategy == 'random' then
    context.node_id = context.random()
  else
    context.moves = request.creation and 'round_robin' or 'ordinary'
    context.node_id = context.rotate(context.moves)
  end
  return true
end

-- Why nothing was chosen: every discovered node once, under its first reason.
local function refusal(request, context)
  local function count(set) return redis.call('ZCARD', key(set)) end
  local reasons = {
    lingering = count('lingering'), over_limit = count('over_limit'), unhealthy = count('unhealthy'),
    not_ready = count('waiting'), excluded = 0,
  }
  if context.pool.degraded then reasons.unhealthy = reasons.unhealthy - count('last_resort') end
  if context.pool.set == 'ready' then
    reasons.not_ready = reasons.not_ready + count('candidates') - count('ready')
  end
  for node_id in pairs(request.excluded) do
    local row = row_of(node_id)
    if row and context.pool.pools[row.pool] then reasons.excluded = reasons.excluded + 1 end
  end
  if context.admits and context.ranks then
    local cpu, memory = count_unfit(context.shape, context.settings, request.excluded)
    if cpu + memory > 1000 then
      reasons.insufficient_capacity = cpu + memory
    else
      reasons.insufficient_cpu, reasons.insufficient_memory = cpu, memory
    end
  else
    reasons.insufficient_memory = count(context.pool.set) - reasons.excluded
  end
  local reply = { 'refused', integer(count('nodes')) }
  for reason, nodes in pairs(reasons) do
    if nodes > 0 then
      reply[#reply + 1] = reason
      reply[#reply + 1] = integer(nodes)
    end
  end
  return reply
end
