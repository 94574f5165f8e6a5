-- @include "include/choose_rotating"
-- @include "include/choose_ranked"
-- @include "include/groups"
-- Grouped round-robin: a key joins its open group, or opens one on the next node.

-- What a request costs its group. What a cold request leaves open is charged in full.
local function group_charge(request, settings)
  local charge = { cpu = request.cpu, memory_mb = request.memory_mb }
  if request.kind == 'cold' then
    if charge.cpu == 0 then charge.cpu = settings.group_max_cpu_count end
    if charge.memory_mb == 0 then charge.memory_mb = settings.group_max_memory_mb end
  end
  return charge
end

-- Why the open group cannot take the request; nil when it can.
local function group_obstacle(group, charge, request, context)
  if request.excluded[group.node_id] then return 'excluded' end
  if not redis.call('ZSCORE', key('ready'), group.node_id) then return 'node_left' end
  if not context.accepts(group.node_id) then return 'node_full' end
  if not has_room(group, charge, context.settings) then return 'budget' end
  return nil
end

-- Returns node id, the cursor that moves, and what happens to the group.
local function choose_grouped(request, context)
  if not request.creation or request.group_key == '' then
    return context.rotate('fallback'), 'fallback', request.creation and { action = 'fallback' } or nil
  end
  local settings, charge = context.settings, group_charge(request, context.settings)
  local group = read_group(request.group_key)
  local obstacle = group and group_obstacle(group, charge, request, context)
  if group and not obstacle then
    return group.node_id, nil, { action = 'join', group = group, charge = charge }
  end
  local outcome = { action = 'open', charge = charge, closes = obstacle }
  if settings.group_placement == 'least_loaded' then return context.rank(), 'ties', outcome end
  return context.rotate('groups'), 'groups', outcome
end

-- Writes what the placement did to its group; returns the fields the reservation remembers it by.
local function commit_group(outcome, request, node_id, sequence, context)
  if not outcome then return {} end
  local stats, settings = key('stats'), context.settings
  if outcome.action == 'fallback' then
    redis.call('HINCRBY', stats, 'groups_fallback', 1)
    return {}
  end
  local group = outcome.group
  if outcome.action == 'open' then
    if outcome.closes then close_group(request.group_key, outcome.closes) end
    group = {
      key = request.group_key, sequence = sequence, count = 0, cpu = 0, memory_mb = 0,
      opened_at_ms = context.now, node_id = node_id,
    }
    redis.call('HINCRBY', stats, 'groups_opened', 1)
  else
    redis.call('HINCRBY', stats, 'groups_joined', 1)
  end
  charge_group(group, outcome.charge, 1)
  if used_up(group, settings) then
    if outcome.action == 'join' then close_group(group.key, 'full') end
  else
    write_group(group)
    redis.call('ZADD', key('groups:recent'), sequence, group.key)
    evict_groups(settings.max_open_groups)
  end
  return {
    'group_key', group.key, 'group_sequence', integer(group.sequence), 'group_cpu', integer(outcome.charge.cpu),
    'group_memory_mb', integer(outcome.charge.memory_mb), 'group_charged', '1',
  }
end
