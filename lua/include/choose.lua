-- @include "include/choose_ranked"
-- What the decision (include/decide) asks of candidates.

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

-- The least loaded candidate. One above its limits is none; nor, where admission applies, one that does not fit.
local function rank_candidates(request, context)
  local counter = tonumber(context.cursors[request.creation and 'ties' or 'ordinary_ties'] or '') or 0
  if context.located then return context.rank_located(counter) end
  local node_id, score = choose_ranked(context.shape, request.excluded, counter)
  if not node_id or score >= (context.admits and UNFIT_FLOOR or OVER_LIMIT_FLOOR) then return nil end
  return node_id
end
