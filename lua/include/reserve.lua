-- @include "include/rows"
-- Reserves on the node that was chosen, in two steps: hold the capacity, so that the next decision sees it, and write the
-- reservation down. What is stopped in between has reserved nothing, and is counted anew with the node's next report.

-- Holds what a creation takes. Returns what write_reservation and undo need of it.
local function hold(request, context, node_id, row)
  local held = {
    request = request, node_id = node_id, row = row, cpu = request.cpu, memory = context.demand.memory,
    degraded = context.degraded and '1' or '0', sequence = integer(redis.call('INCR', key('sequence'))),
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
    warm_keys.note(node_id, request.origin, held.sequence)
  end
  row.pending_cpu = row.pending_cpu + held.cpu
  row.pending_memory = row.pending_memory + held.memory
  row.pending_count = row.pending_count + 1
  if request.resources then resources.hold(row, request.resources, 1) end
  if request.spread then
    -- @inline "include/spreads"
    held.spread = request.spread.key
    tallies.count_spread(held.spread, node_id, 1)
  end
  if context.avoiding and redis.call('ZSCORE', key('avoided_until'), node_id) then
    -- @inline "include/avoidance"
    note_trial(node_id, context.now)
    save_rows()
  end
  save_row(node_id)
  return held
end

-- Writes the reservation of a hold. `terms`: id, fingerprint, lifecycle, ttl_ms, request_id, caller, sandbox_id ('' when
-- the node names it), strategy and now. Returns its fields, without what the caller brought.
local function write_reservation(terms, held)
  local node, id, request = node_key(held.node_id), terms.id, held.request
  local cpu, memory = integer(held.cpu), integer(held.memory)
  local deadline = integer(terms.now + terms.ttl_ms)
  local fields = {
    'node_id', held.node_id, 'state', 'pending', 'lifecycle', terms.lifecycle, 'cpu_count', cpu, 'memory_bytes', memory,
    'created_at_ms', integer(terms.now), 'expires_at_ms', deadline, 'sequence', held.sequence, 'revision', '1',
  }
  local function add(name, value) fields[#fields + 1], fields[#fields + 2] = name, value end
  if held.degraded == '1' then add('degraded', '1') end
  if terms.sandbox_id ~= '' then
    add('sandbox_id', terms.sandbox_id)
    add('sandbox_told', 'named')
  end
  if request.template_id ~= '' then add('template_id', request.template_id) end
  if request.origin ~= '' then add('origin', request.origin) end
  if request.resources then add('resources', resources.written(request.resources)) end
  if held.spread then
    add('spread', held.spread)
    add('spread_counted', '1')
  end
  for _, value in ipairs(held.group_fields or {}) do fields[#fields + 1] = value end
  redis.call('ZADD', key('reservations'), held.sequence, id)
  redis.call('ZADD', key('expiry'), deadline, id)
  redis.call('ZADD', node .. ':reservations', held.sequence, id)
  if terms.sandbox_id ~= '' then
    redis.call('SET', key('sandbox:' .. terms.sandbox_id), id)
    redis.call('HSET', node .. ':claims', terms.sandbox_id, id)
  else
    redis.call('HSET', node .. ':unnamed', id, (terms.lifecycle == 'heartbeat' and 'h' or 'e') .. ',' .. held.sequence .. ','
      .. cpu .. ',' .. memory .. ',1')
  end
  redis.call('HSET', reservation_key(id), 'fingerprint', terms.fingerprint, 'strategy', terms.strategy, 'caller',
    terms.caller, 'request_id', terms.request_id, unpack(fields))
  return fields
end
