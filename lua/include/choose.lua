-- @include "include/choose_ranked"
-- What the decision (include/decide) asks of candidates.

-- Nobody is fresh, and somebody is unhealthy but within limits.
local function is_last_resort()
  local function count(set) return redis.call('ZCARD', key(set)) end
  return count('candidates') == 0 and count('avoided') == 0 and count('over_limit') == 0 and count('waiting') == 0
    and count('last_resort') + count('avoided_last_resort') > 0
end

-- Whose turn it may be: the set that rotation walks, the one it walks when nobody in it will do, and the shape
-- variant that ranking reads.
local function find_candidates(context)
  context.set, context.second, context.variant, context.degraded = 'candidates', 'avoided', 'any', false
  if context.settings.strategy == 'grouped_round_robin' then
    context.set, context.second, context.variant = 'ready', 'avoided_ready', 'ready'
  elseif is_last_resort() then
    context.set, context.second, context.variant, context.degraded = 'last_resort', 'avoided_last_resort', 'degraded', true
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
