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

-- Whether an event of this node has stated the size of a sandbox. An event's size comes before its reservation's, so once
-- that is forgotten nobody knows it. The score of such an event in `explained` has a fraction.
local function event_told_size(node_id, sandbox_id, now)
  local told = redis.call('ZMSCORE', node_key(node_id, 'explained'), 'create ' .. sandbox_id, 'fork ' .. sandbox_id)
  if tonumber(told[1] or 0) % 1 == 0 and tonumber(told[2] or 0) % 1 == 0 then return false end
  return not is_evicted(node_id, now)
end

-- Sizes that a record lacks are those of its reservation, unless an event told others.
local function size_by_reservation(node_id, sandbox_id, record, reservation, now)
  local cpu, memory = tonumber(reservation.cpu_count), tonumber(reservation.memory_bytes)
  local lacks = (record.cpu == 0 and cpu > 0) or (record.memory == 0 and memory > 0)
  if not lacks or event_told_size(node_id, sandbox_id, now) then return end
  if record.cpu == 0 then record.cpu = cpu end
  if record.memory == 0 then record.memory = memory end
end

-- Records that a sandbox runs on a node, as somebody tells; the last one wins, whoever held it before.
-- `facts`: what the teller knows: cpu and memory that an event stated, or the `reservation` that is this sandbox now.
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
    if (facts[dimension] or 0) > 0 then record[dimension] = facts[dimension] end
  end
  local reservation = facts.reservation
  if reservation then
    if not facts.cpu then size_by_reservation(node_id, sandbox_id, record, reservation, now) end
    record.caller, record.group_key = reservation.caller or '', reservation.group_key or ''
    tallies.give_spread(sandbox_id, record, reservation)
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
