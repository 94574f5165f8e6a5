-- @include "include/scores"
-- What the decision (inline/decide) asks of candidates.

-- Nobody is fresh, and somebody is unhealthy but within limits.
local function is_last_resort()
  local function count(set) return redis.call('ZCARD', key(set)) end
  return count('candidates') == 0 and count('avoided') == 0 and count('over_limit') == 0 and count('waiting') == 0
    and count('last_resort') + count('avoided_last_resort') > 0
end

-- Whose turn it may be: the variant of pools that ranking reads, the set that rotation walks, and the one it walks when
-- nobody in it will do.
local function find_candidates(context)
  context.variant = context.settings.traits.candidates
  context.degraded = context.variant == 'any' and is_last_resort()
  if context.degraded then context.variant = 'degraded' end
  local candidates = node_pools.candidates(context.variant)
  context.set, context.second = candidates.set, candidates.second
end

-- The least loaded candidate, or the fullest within `fill_to`. One above its limits is none; nor, where admission applies,
-- one that does not fit.
local function rank_all(request, context, counter)
  if context.located then return context.rank_located(counter) end
  -- @inline "include/choose_ranked"
  context.found = choose_ranked(request, context, counter)
  return context.found and string.sub(context.found.member, 31) or nil
end

-- The same, or with `affinity` a node that holds the request's image or template and is hardly fuller.
local function rank_candidates(request, context)
  local counter = tonumber(context.cursors[request.creation and 'ties' or 'ordinary_ties'] or '') or 0
  if not (context.settings.slack and request.creation and request.origin ~= '') then
    return rank_all(request, context, counter)
  end
  -- @inline "inline/warm"
  return choose_warm(rank_all, counter)
end
