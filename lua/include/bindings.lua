-- @include "include/unbinding"
-- Which node a sandbox runs on, by its record (include/records).
--   node:<id>:sandboxes      what the node's installed roster lists, each bound to that node
--   node:<id>:assigned       recorded but not listed yet, or not any more by a new instance, by sequence
--   node:<id>:deleted        listed ids that a delete event named, by the sequence of the event
--   assigned                 all that no roster lists, by when they were recorded
--   ended                    ids that were listed or told and are no more, by when

-- Puts a told sandbox among those that no roster lists yet.
local function await(sandbox_id, record)
  redis.call('ZADD', node_key(record.node_id, 'assigned'), integer(record.sequence), sandbox_id)
  redis.call('ZADD', key('assigned'), integer(record.recorded_at_ms), sandbox_id)
end

-- Records that a sandbox runs on a node, as somebody tells; the last one wins, whoever held it before.
-- `facts`: what the teller knows (cpu, memory, caller, group_key, spread). A size that is known already stays, unless an
-- event states it (`facts.exact`).
local function bind(node_id, sandbox_id, now, facts)
  local record = record_of(sandbox_id)
  if record and record.node_id ~= node_id then
    unlist(record.node_id, { sandbox_id }, { [sandbox_id] = record })
    forget_assignments(record.node_id, { sandbox_id }, true)
  end
  record = record or { cpu = 0, memory = 0, paused = false, deleted = 0, caller = '', group_key = '', mark = 'l' }
  local listed = is_listed(node_id, sandbox_id)
  local stranger = listed and record.mark == 'l' and record.sequence <= account_of(node_id).baseline_generation
  if listed and record.node_id == node_id then count_record(record, -1) end
  for _, dimension in ipairs({ 'cpu', 'memory' }) do
    local stated = facts[dimension] or 0
    if stated > 0 and (facts.exact or record[dimension] == 0) then record[dimension] = stated end
  end
  if facts.caller then
    record.caller, record.group_key = facts.caller, facts.group_key or ''
    tallies.give_spread(sandbox_id, record, facts.spread)
  end
  record.node_id, record.recorded_at_ms, record.mark = node_id, now, 't'
  record.sequence = sequence_now()
  if not listed then
    record.deleted = 0
    await(sandbox_id, record)
  else
    count_record(record, 1)
    if stranger then
      -- One of the baseline is told: its size is explained from now on.
      local account = account_of(node_id)
      account.baseline_cpu = math.max(0, account.baseline_cpu - record.cpu)
      account.baseline_memory = math.max(0, account.baseline_memory - record.memory)
    end
  end
  redis.call('HSET', key('bindings'), sandbox_id, record_text(record))
  return record
end
