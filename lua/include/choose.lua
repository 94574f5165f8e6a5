-- @include "include/choose_ranked"
-- The one decision: which node. Reads, keeps derived indexes current, reserves nothing.
--
--   candidates (the last resort only when none is fresh)
--     → locality (advisory) → the strategy → node, cursor to move, what happens to its group

-- Whose turn it may be: the set that rotation walks, and the shape variant that ranking reads.
local function find_candidates(context)
  context.set, context.variant, context.degraded = 'candidates', 'any', false
  if context.settings.strategy == 'grouped_round_robin' then
    context.set, context.variant = 'ready', 'ready'
  elseif redis.call('ZCARD', key('candidates')) == 0 and redis.call('ZCARD', key('last_resort')) > 0
    and redis.call('ZCARD', key('over_limit')) == 0 and redis.call('ZCARD', key('waiting')) == 0 then
    context.set, context.variant, context.degraded = 'last_resort', 'degraded', true
  end
end

-- The least loaded candidate. Where admission applies, one that does not fit is none.
local function rank_candidates(request, context)
  local counter = tonumber(context.cursors[request.creation and 'ties' or 'ordinary_ties'] or '') or 0
  if context.located then return context.rank_located(counter) end
  local node_id, score = choose_ranked(context.shape, request.excluded, counter)
  if not node_id or (context.admits and score >= UNFIT_FLOOR) then return nil end
  return node_id
end

local function choose_by_turn(request, context)
  -- @include "include/choose_by_turn"
  return choose_unranked(request, context)
end

local function prefer_located(request, context)
  -- @include "include/choose_located"
  return locate(request, context)
end

-- False when a slice of index building was worked off and the caller must call again. Else true, with
-- the node (nil: refused), the cursor it moves, and what happens to its group, in `context`.
local function choose(request, context)
  local settings = context.settings
  find_candidates(context)
  if settings.strategy == 'grouped_round_robin' then read_group_settings(settings) end
  context.admits = settings.admits and request.creation
  context.shape = shape_of(request.creation, request.cpu, request.memory_mb, context.variant)
  local ranked = settings.strategy == 'least_loaded'
  context.indexed = ranked or context.admits or (request.creation and settings.group_placement == 'least_loaded')
  if context.indexed and not open_shape(context.shape, settings, context.now, context.cursors.journal_base) then
    return false
  end
  if settings.locality and #request.locality > 0 then prefer_located(request, context) end
  if ranked then
    context.node_id, context.moves = rank_candidates(request, context), request.creation and 'ties' or 'ordinary_ties'
  else
    choose_by_turn(request, context)
  end
  return true
end
