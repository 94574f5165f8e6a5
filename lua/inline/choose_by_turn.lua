-- inline/choose_by_turn.lua: the strategies that do not rank.
-- Reads: context, request, settings
-- Sets: accepts, by_chance, choose_unranked, first_sets, head_of_index, next_in_turn, otherwise, second_sets
-- @include "include/choose_rotating"
-- @include "include/acceptance"

local first_sets, second_sets = parts_of(context.set, request.matches), parts_of(context.second, request.matches)

local function accepts(node_id)
  return is_acceptable(node_id, request, context)
end

-- Where no candidate within reach will do, the head of the index decides.
local function head_of_index()
  local limited = settings.limited and request.creation
  if not (context.admits or limited or request.matches or request.resources or request.spread or request.spares) then
    return nil
  end
  local node_id = rank_candidates(request, context)
  return node_id and accepts(node_id) and node_id or nil
end

-- Avoided nodes come when nobody else will do. The index holds them too, behind all others that fit.
local function otherwise(cursor)
  return head_of_index() or (context.avoiding and rotate(second_sets, cursor, accepts)) or nil
end

local function next_in_turn(name)
  if context.located then return context.next_located(context.cursors[name]) end
  return rotate(first_sets, context.cursors[name], accepts) or otherwise(context.cursors[name])
end

local function by_chance()
  local node_id = pick_random(first_sets, request.entropy, request.excluded)
  if node_id and accepts(node_id) then return node_id end
  return (node_id and rotate(first_sets, node_id, accepts)) or otherwise(node_id)
end

local function choose_unranked()
  local traits = context.settings.traits
  if traits.by == 'group' then
    -- @inline "inline/choose_grouped"
    context.node_id, context.moves, context.group = choose_group_node()
  elseif traits.by == 'chance' then
    context.node_id = context.located and context.random_located() or by_chance()
  else
    context.moves = request.creation and traits.cursor or traits.other_cursor
    context.node_id = next_in_turn(context.moves)
  end
end
