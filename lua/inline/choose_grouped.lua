-- inline/choose_grouped.lua: a key joins its open group, or opens one on the next node.
-- Reads: accepts, context, next_in_turn, request
-- Sets: choose_group_node, group_charge, group_obstacle
-- @include "include/groups"

-- What a request costs its group. What a cold request leaves open is charged in full.
local function group_charge()
  local charge = { cpu = request.cpu, memory_mb = request.memory_mb }
  if request.kind == 'cold' then
    if charge.cpu == 0 then charge.cpu = context.settings.group_max_cpu_count end
    if charge.memory_mb == 0 then charge.memory_mb = context.settings.group_max_memory_mb end
  end
  return charge
end

-- Why the open group cannot take the request; nil when it can.
local function group_obstacle(group, charge)
  if request.excluded[group.node_id] then return 'excluded' end
  if not redis.call('ZSCORE', key('ready'), group.node_id) then return 'node_left' end
  if not accepts(group.node_id) then return 'node_full' end
  if not has_room(group, charge, context.settings) then return 'budget' end
  return nil
end

-- Returns node id, the cursor that moves, and what happens to the group.
local function choose_group_node()
  if not request.creation or request.group_key == '' then
    local cursor = request.creation and context.settings.traits.cursor or context.settings.traits.other_cursor
    return next_in_turn(cursor), cursor, request.creation and { action = 'fallback' } or nil
  end
  local charge, group = group_charge(), read_group(request.group_key)
  local obstacle = group and group_obstacle(group, charge)
  if group and not obstacle then
    return group.node_id, nil, { action = 'join', group = group, charge = charge }
  end
  local outcome = { action = 'open', charge = charge, closes = obstacle }
  local opening = context.settings.group_traits
  local node_id = opening.by == 'rank' and rank_candidates(request, context) or nil
  local rotation = context.settings.groups_rotation
  if opening.by == 'turn' then node_id = next_in_turn(rotation) end
  return node_id, rotation, outcome
end
