-- @include "include/groups"
-- What a placement does to its group, written down.

-- What taking a placement back needs to know of a group, kept in `before` (nil: nothing is taken back): its text and its
-- place in the order of use; false: it is not open.
local function keep_group(before, group_key, place)
  if not before or before[group_key] ~= nil then return end
  local text = redis.call('HGET', key('groups'), group_key)
  place = place or redis.call('ZSCORE', key('groups:recent'), group_key) or '0'
  before[group_key] = text and { text, place } or false
end

local function evict_groups(max_open_groups, before)
  local surplus = redis.call('ZCARD', key('groups:recent')) - max_open_groups
  if surplus <= 0 then return end
  local evicted = redis.call('ZPOPMIN', key('groups:recent'), math.min(surplus, 100))
  for index = 1, #evicted, 2 do
    keep_group(before, evicted[index], evicted[index + 1])
    redis.call('HDEL', key('groups'), evicted[index])
  end
  redis.call('HINCRBY', key('stats'), 'groups_evicted', #evicted / 2)
end

-- Returns the fields by which the reservation remembers what it was charged.
local function commit_group_outcome(outcome, request, node_id, sequence, context)
  local stats, settings = key('stats'), context.settings
  if outcome.action == 'fallback' then
    redis.call('HINCRBY', stats, 'groups_fallback', 1)
    return {}
  end
  keep_group(context.groups_before, request.group_key)
  local group = outcome.group
  if outcome.action == 'open' then
    if outcome.closes then close_group(request.group_key, outcome.closes) end
    group = {
      key = request.group_key, sequence = tonumber(sequence), count = 0, cpu = 0, memory_mb = 0,
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
    evict_groups(settings.max_open_groups, context.groups_before)
  end
  return {
    'group_key', group.key, 'group_sequence', integer(group.sequence), 'group_cpu', integer(outcome.charge.cpu),
    'group_memory_mb', integer(outcome.charge.memory_mb), 'group_charged', '1',
  }
end
