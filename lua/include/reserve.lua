-- @include "include/rows"
-- @include "include/new_reservation"
-- Reserves on the node that was chosen, in two steps: hold the capacity, so that the next decision sees it, and
-- write the reservation down. What is stopped in between has reserved nothing, and is counted anew with the node's
-- next report.

-- Holds what a creation takes. Returns what write_reservation and undo need of it.
local function hold(request, context, node_id, row)
  local held = {
    request = request, node_id = node_id, row = row, cpu = request.cpu, memory = context.demand.memory,
    degraded = context.degraded and '1' or '0', sequence = integer(redis.call('INCR', key('sequence'))),
    fields = false, last_told = false,
  }
  local known = rows[node_id]
  known.endpoint = known.endpoint or redis.call('HGET', node_key(node_id), 'endpoint') or ''
  held.endpoint = known.endpoint
  if context.group then
    -- @inline "include/commit_group"
    held.group = context.group
    held.group_fields = commit_group_outcome(context.group, request, node_id, held.sequence, context)
  end
  if context.settings.slack and request.origin ~= '' then
    -- @inline "include/warm_keys"
    warm_keys.note(node_id, request.origin, held.sequence, context.warm)
  end
  row.pending_cpu = row.pending_cpu + held.cpu
  row.pending_memory = row.pending_memory + held.memory
  row.pending_count = row.pending_count + 1
  if request.resources then
    resources.hold(row, request.resources, 1)
    held.resources = resources.written(request.resources)
  end
  if request.spread then
    -- @inline "include/spreads"
    held.spread = request.spread.key
    tallies.count_spread(held.spread, node_id, 1)
  end
  local until_ms = context.avoiding and redis.call('ZSCORE', key('avoided_until'), node_id)
  if until_ms then
    -- @inline "include/avoidance"
    held.trial = redis.call('HMGET', node_key(node_id), 'avoid_tried', 'avoided_until_ms')
    held.trial.until_ms, held.trial.avoided = until_ms, row.avoided
    note_trial(node_id, context.now)
    save_rows()
  end
  save_row(node_id)
  return held
end

-- Writes the reservation of a hold, and its fields into it (include/new_reservation has its terms).
local function write_reservation(terms, held)
  local node, id = node_key(held.node_id), held.id
  local fields, deadline, unnamed = describe_reservation(terms, held)
  redis.call('ZADD', key('reservations'), held.sequence, id)
  redis.call('ZADD', key('expiry'), deadline, id)
  redis.call('ZADD', node .. ':reservations', held.sequence, id)
  if held.sandbox_id ~= '' then
    redis.call('SET', key('sandbox:' .. held.sandbox_id), id)
    redis.call('HSET', node .. ':claims', held.sandbox_id, id)
  else
    redis.call('HSET', node .. ':unnamed', id, unnamed)
  end
  held.fields = fields
  write_record(terms, id, fields)
end
