-- Included inside include/decide: the strategies that do not rank.
-- @include "include/choose_rotating"
-- @include "include/acceptance"

local function accepts(node_id)
  return is_acceptable(node_id, request, context)
end

-- Where admission applies and no candidate within reach fits, the shape's head decides.
local function next_in_turn(name)
  if context.located then return context.next_located(context.cursors[name]) end
  local node_id = rotate(context.set, context.cursors[name], accepts)
  if not node_id and context.admits then node_id = rank_candidates(request, context) end
  return node_id
end

local function by_chance()
  local node_id = pick_random(context.set, request.entropy, request.excluded)
  if not node_id or accepts(node_id) then return node_id end
  node_id = rotate(context.set, node_id, accepts)
  if not node_id and context.admits then node_id = rank_candidates(request, context) end
  return node_id
end

local function choose_unranked()
  local strategy = context.settings.strategy
  if strategy == 'grouped_round_robin' then
    -- @include "include/choose_grouped"
    context.node_id, context.moves, context.group = choose_group_node()
  elseif strategy == 'random' then
    context.node_id = context.located and context.random_located() or by_chance()
  else
    context.moves = request.creation and 'round_robin' or 'ordinary'
    context.node_id = next_in_turn(context.moves)
  end
end
