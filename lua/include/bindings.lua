-- @include "include/reservations"
-- @include "include/records"
-- Which node a sandbox runs on, by its record (include/records).
--   node:<id>:sandboxes      what the node's installed roster lists, each bound to that node
--   node:<id>:assigned       recorded but not listed yet, or not any more by a new instance, by sequence
--   node:<id>:deleted        listed ids that a delete event named, by the sequence of the event
--   assigned                 all that no roster lists, by when they were recorded
--   ended                    ids that were listed or told and are no more, by when
-- A binding carries no TTL to refresh: it is valid until binding_ttl after the later of its
-- recording and the last report of a node that still lists it.

-- Whatever takes `sandbox_ids` handles them together, at most 500 in one call: a handful of commands
-- for a slice of a roster, not a handful for each of its sandboxes.
local ENDED_MS = 600000

local unlist, forget_assignments, remember_ended, unbind, forget_listed
do
  local ENDED_MAX = 100000

  -- A node's installed roster was changed. The stored digest no longer describes it, so the node's next report is
  -- applied as a difference again.
  local function note_edit(node_id)
    local account = account_of(node_id)
    if not account then return end
    -- The load of the last report may still count what the roster does not list any more.
    account.roster_whole = 0
    weigh_again(node_id)
    redis.call('HDEL', node_key(node_id), 'roster_digest')
    redis.call('HINCRBY', node_key(node_id), 'roster_edits', 1)
  end

  -- Takes sandboxes out of a node's installed roster.
  function unlist(node_id, sandbox_ids, records)
    local listed = redis.call('SMISMEMBER', node_key(node_id, 'sandboxes'), unpack(sandbox_ids))
    local gone = {}
    for index, is_member in ipairs(listed) do
      local record = records[sandbox_ids[index]]
      if is_member == 1 then
        gone[#gone + 1] = sandbox_ids[index]
        if record and record.node_id == node_id then count_record(record, -1) end
      end
    end
    if not gone[1] then return end
    note_edit(node_id)
    redis.call('ZREM', node_key(node_id, 'deleted'), unpack(gone))
    redis.call('SREM', node_key(node_id, 'sandboxes'), unpack(gone))
  end

  -- Sandboxes that are no longer awaited by a node. It goes on judging those that a reservation of its own claims.
  function forget_assignments(node_id, sandbox_ids, another_holds_them)
    redis.call('ZREM', key('assigned'), unpack(sandbox_ids))
    local claims = another_holds_them and redis.call('HMGET', node_key(node_id, 'claims'), unpack(sandbox_ids)) or {}
    local left = {}
    for index, sandbox_id in ipairs(sandbox_ids) do
      if not claims[index] then left[#left + 1] = sandbox_id end
    end
    if left[1] then redis.call('ZREM', node_key(node_id, 'assigned'), unpack(left)) end
  end

  function remember_ended(sandbox_ids, now)
    local scored = {}
    for _, sandbox_id in ipairs(sandbox_ids) do scored[#scored + 1], scored[#scored + 2] = integer(now), sandbox_id end
    redis.call('ZADD', key('ended'), unpack(scored))
    redis.call('ZREMRANGEBYRANK', key('ended'), 0, -ENDED_MAX - 1)
  end

  -- Deletes the bindings that still point to that node, listed or not.
  function unbind(node_id, sandbox_ids, now)
    if #sandbox_ids == 0 then return end
    local records, own = records_of(sandbox_ids), {}
    for _, sandbox_id in ipairs(sandbox_ids) do
      if records[sandbox_id] and records[sandbox_id].node_id == node_id then own[#own + 1] = sandbox_id end
    end
    -- The binding before what leads to it, which leads whoever comes next to the rest.
    if own[1] then
      tallies.forget_spread_records(own, records)
      redis.call('HDEL', key('bindings'), unpack(own))
      redis.call('ZREM', key('assigned'), unpack(own))
      remember_ended(own, now)
    end
    unlist(node_id, sandbox_ids, records)
    redis.call('ZREM', node_key(node_id, 'assigned'), unpack(sandbox_ids))
  end

  -- Takes some of a node's installed roster away, and their bindings; how many.
  function forget_listed(node_id, slice, now)
    local listed = redis.call('SRANDMEMBER', node_key(node_id, 'sandboxes'), slice)
    if not listed[1] then return 0 end
    note_edit(node_id)
    local own, records = {}, records_of(listed)
    for sandbox_id, record in pairs(records) do
      if record.node_id == node_id then
        count_record(record, -1)
        own[#own + 1] = sandbox_id
      end
    end
    if own[1] then
      tallies.forget_spread_records(own, records)
      redis.call('HDEL', key('bindings'), unpack(own))
      remember_ended(own, now)
    end
    redis.call('ZREM', node_key(node_id, 'deleted'), unpack(listed))
    redis.call('SREM', node_key(node_id, 'sandboxes'), unpack(listed))
    return #listed
  end
end

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
  if facts.caller then record.caller, record.group_key, record.spread = facts.caller, facts.group_key or '', facts.spread end
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

-- Until when a lookup may trust a binding. `last_seen_ms` nil: the node never reported.
local function valid_until(record, sandbox_id, last_seen_ms, binding_ttl_ms)
  if record.deleted > 0 then return 0 end
  local since = record.recorded_at_ms
  if last_seen_ms and last_seen_ms > since and is_listed(record.node_id, sandbox_id) then since = last_seen_ms end
  return since + binding_ttl_ms
end
