local prefix = string.match(KEYS[1], '^(.*:)settings$')
local function key(name)
  return prefix .. name
end
local function node_key(node_id, part)
  if string.find(node_id, '[%%:]') then
    node_id = string.gsub(string.gsub(node_id, '%%', '%%25'), ':', '%%3A')
  end
  if part then return prefix .. 'node:' .. node_id .. ':' .. part end
  return prefix .. 'node:' .. node_id
end
local function reservation_key(reservation_id)
  return prefix .. 'reservation:' .. reservation_id
end
local function fail(code, detail)
  return redis.error_reply(code .. ' ' .. detail)
end
local function integer(number)
  return string.format('%d', number)
end
local function as_table(flat)
  local fields = {}
  for index = 1, #flat, 2 do fields[flat[index]] = flat[index + 1] end
  return fields
end
local function as_table_of(hash, ...)
  local names = { ... }
  local found = redis.call('HMGET', hash, ...)
  local fields = {}
  for index, field in ipairs(names) do fields[field] = found[index] or nil end
  return fields
end
local ROW = '^(%a),(%-?%d+),(%-?%d+),(%d+),(%d+),(%d+),(%d+),(%d+),(%d+),(%d+),(%d+)$'
local JOURNAL_CAP = 65536
local rows, row_order, journal_trimmed = {}, {}, 0
local function parse_row(text)
  local pool, cpu_capacity, memory_capacity, cpu_load, memory_load, starting, running, paused,
    pending_cpu, pending_memory, pending_count = string.match(text, ROW)
  return {
    pool = pool,
    cpu_capacity = tonumber(cpu_capacity), memory_capacity = tonumber(memory_capacity),
    cpu_load = tonumber(cpu_load), memory_load = tonumber(memory_load),
    starting = tonumber(starting), running = tonumber(running), paused = tonumber(paused),
    pending_cpu = tonumber(pending_cpu), pending_memory = tonumber(pending_memory),
    pending_count = tonumber(pending_count),
  }
end
local function format_row(row)
  return string.format('%s,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d', row.pool,
    row.cpu_capacity, row.memory_capacity, row.cpu_load, row.memory_load, row.starting,
    row.running, row.paused, row.pending_cpu, row.pending_memory, row.pending_count)
end
local function row_member(row, node_id)
  return string.format('%010d%010d%010d', row.starting + row.pending_count,
    row.running, row.paused) .. node_id
end
local function row_of(node_id)
  local known = rows[node_id]
  if known then return known.row end
  local text = redis.call('HGET', key('loads'), node_id)
  local row = text and parse_row(text) or nil
  rows[node_id] = { row = row, text = text, pool = row and row.pool, member = row and row_member(row, node_id) }
  row_order[#row_order + 1] = node_id
  return row
end
local function move_pool(node_id, from, to)
  local sets = {
    r = { 'candidates', 'ready' }, c = { 'candidates' }, u = { 'unhealthy', 'last_resort' },
    x = { 'unhealthy' }, o = { 'over_limit' }, l = { 'lingering' }, w = { 'waiting' },
  }
  for _, name in ipairs(sets[from] or {}) do redis.call('ZREM', key(name), node_id) end
  for _, name in ipairs(sets[to] or {}) do redis.call('ZADD', key(name), 0, node_id) end
end
local function trim_journal(length)
  local surplus = length - JOURNAL_CAP
  redis.call('LTRIM', key('journal'), surplus, -1)
  redis.call('HINCRBY', key('cursors'), 'journal_base', surplus)
  journal_trimmed = journal_trimmed + surplus
end
local function save_rows()
  local length
  for _, node_id in ipairs(row_order) do
    local known = rows[node_id]
    local row = known.row
    local text = row and format_row(row)
    if text ~= known.text and (text or known.text) then
      if text then
        redis.call('HSET', key('loads'), node_id, text)
      else
        redis.call('HDEL', key('loads'), node_id)
      end
      local pool = row and row.pool
      if pool ~= known.pool then move_pool(node_id, known.pool, pool) end
      length = redis.call('RPUSH', key('journal'), known.member or (string.rep('0', 30) .. node_id))
      known.text, known.pool, known.member = text, pool, row and row_member(row, node_id)
    end
  end
  if length and length > JOURNAL_CAP + 1024 then trim_journal(length) end
  return length
end
local function hold(reservation, cpu, memory, count)
  reservation.held_cpu, reservation.held_memory, reservation.held_count = cpu, memory, count
  local row = row_of(reservation.node_id)
  if not row then return end
  row.pending_cpu = row.pending_cpu + cpu
  row.pending_memory = row.pending_memory + memory
  row.pending_count = row.pending_count + count
end
local function held_by(reservation)
  return tonumber(reservation.held_cpu or reservation.cpu_count),
    tonumber(reservation.held_memory or reservation.memory_bytes), tonumber(reservation.held_count or 1)
end
local function release(reservation)
  local row = row_of(reservation.node_id)
  if row then
    local cpu, memory, count = held_by(reservation)
    row.pending_cpu = row.pending_cpu - cpu
    row.pending_memory = row.pending_memory - memory
    row.pending_count = row.pending_count - count
  end
  reservation.held_cpu, reservation.held_memory, reservation.held_count = 0, 0, 0
end
local function given_up(node_id, now)
  if row_of(node_id) then return false end
  local at = tonumber(redis.call('ZSCORE', key('removed'), node_id) or '')
  local left_at = not at and redis.call('HGET', node_key(node_id), 'removed_at_ms')
  if left_at then at = tonumber(left_at) + tonumber(redis.call('HGET', KEYS[1], 'report_ttl_ms')) end
  return not at or at <= now, at or 0
end
local GROUP = '^(%d+),(%d+),(%d+),(%d+),(%d+),(.*)$'
local function read_group(group_key)
  local text = redis.call('HGET', key('groups'), group_key)
  if not text then return nil end
  local sequence, count, cpu, memory_mb, opened_at_ms, node_id = string.match(text, GROUP)
  return {
    key = group_key, sequence = tonumber(sequence), count = tonumber(count), cpu = tonumber(cpu),
    memory_mb = tonumber(memory_mb), opened_at_ms = tonumber(opened_at_ms), node_id = node_id,
  }
end
local function write_group(group)
  redis.call('HSET', key('groups'), group.key, string.format('%d,%d,%d,%d,%d,', group.sequence,
    group.count, group.cpu, group.memory_mb, group.opened_at_ms) .. group.node_id)
end
local function close_group(group_key, reason)
  redis.call('HDEL', key('groups'), group_key)
  redis.call('ZREM', key('groups:recent'), group_key)
  redis.call('HINCRBY', key('stats'), 'groups_closed_' .. reason, 1)
end
local function used_up(group, budget)
  return group.count >= budget.group_max_sandbox_count
    or (budget.group_max_cpu_count > 0 and group.cpu >= budget.group_max_cpu_count)
    or (budget.group_max_memory_mb > 0 and group.memory_mb >= budget.group_max_memory_mb)
end
local function has_room(group, charge, budget)
  return group.count < budget.group_max_sandbox_count
    and (budget.group_max_cpu_count == 0 or group.cpu + charge.cpu <= budget.group_max_cpu_count)
    and (budget.group_max_memory_mb == 0 or group.memory_mb + charge.memory_mb <= budget.group_max_memory_mb)
end
local function charge_group(group, charge, direction)
  group.count = group.count + direction
  group.cpu = group.cpu + direction * charge.cpu
  group.memory_mb = group.memory_mb + direction * charge.memory_mb
end
local function charged_group(reservation)
  if not reservation.group_key then return nil end
  local group = read_group(reservation.group_key)
  if group and group.sequence == tonumber(reservation.group_sequence) then return group end
  return nil
end
local function charge_of(reservation)
  return { cpu = tonumber(reservation.group_cpu), memory_mb = tonumber(reservation.group_memory_mb) }
end
local function give_back(reservation)
  if reservation.group_charged ~= '1' then return end
  reservation.group_charged = '0'
  redis.call('HSET', reservation_key(reservation.reservation_id), 'group_charged', 0)
  local group = charged_group(reservation)
  if not group then return end
  charge_group(group, charge_of(reservation), -1)
  write_group(group)
end
local function read_budget()
  local budget = as_table_of(KEYS[1], 'group_max_sandbox_count', 'group_max_cpu_count', 'group_max_memory_mb')
  for name, value in pairs(budget) do budget[name] = tonumber(value) end
  return budget
end
local function charge_again(reservation, budget)
  if reservation.group_charged ~= '0' then return end
  reservation.group_charged = '1'
  redis.call('HSET', reservation_key(reservation.reservation_id), 'group_charged', 1)
  local group = charged_group(reservation)
  if not group then return end
  charge_group(group, charge_of(reservation), 1)
  if used_up(group, budget) then close_group(group.key, 'full') else write_group(group) end
end
local RETENTION_MS = 3600000
local EXPIRY_SLICE = 1024
local ACKNOWLEDGED_MAX = 1024
local report_generation
local function read_reservation(reservation_id)
  local flat = redis.call('HGETALL', reservation_key(reservation_id))
  if #flat == 0 then return nil end
  local reservation = as_table(flat)
  reservation.reservation_id = reservation_id
  return reservation
end
local function explain_growth(node_id, cpu, memory, count)
  local node = node_key(node_id)
  if redis.call('EXISTS', node) == 0 then return end
  redis.call('HINCRBY', node, 'explained_count', integer(count))
  if cpu > 0 then redis.call('HINCRBY', node, 'explained_cpu', integer(cpu))
  else redis.call('HSET', node, 'explained_any_cpu', 1) end
  if memory > 0 then redis.call('HINCRBY', node, 'explained_memory', integer(memory))
  else redis.call('HSET', node, 'explained_any_memory', 1) end
end
local function readable_for(reservation)
  local ttl_ms = tonumber(reservation.ttl_ms or '') or (reservation.expires_at_ms - reservation.created_at_ms)
  return math.max(RETENTION_MS, ttl_ms)
end
local function purge_finished(now, slice)
  local gone = redis.call('ZRANGEBYSCORE', key('finished'), '-inf', integer(now), 'LIMIT', 0, slice)
  for _, reservation_id in ipairs(gone) do
    redis.call('ZREM', key('finished'), reservation_id)
    redis.call('ZREM', key('reservations'), reservation_id)
    local node_id = redis.call('HGET', reservation_key(reservation_id), 'node_id')
    if node_id then redis.call('ZREM', node_key(node_id, 'acknowledged'), reservation_id) end
    redis.call('DEL', reservation_key(reservation_id))
  end
  return #gone
end
local function finish_reservation(reservation, state, reason, now)
  local id, node_id = reservation.reservation_id, reservation.node_id
  local retention = readable_for(reservation)
  release(reservation)
  reservation.state, reservation.reason, reservation.finished_at_ms = state, reason, integer(now)
  redis.call('HSET', reservation_key(id), 'state', state, 'reason', reason, 'finished_at_ms', integer(now),
    'held_cpu', 0, 'held_memory', 0, 'held_count', 0)
  if report_generation then redis.call('HSET', reservation_key(id), 'report_generation', report_generation) end
  redis.call('PEXPIRE', reservation_key(id), integer(retention + RETENTION_MS))
  redis.call('ZREM', key('expiry'), id)
  redis.call('ZREM', node_key(node_id, 'reservations'), id)
  redis.call('ZADD', key('finished'), integer(now + retention), id)
  local sandbox_id = reservation.sandbox_id
  if reason == 'counters' and not sandbox_id then
    redis.call('ZADD', node_key(node_id, 'acknowledged'), reservation.sequence, id)
    redis.call('ZREMRANGEBYRANK', node_key(node_id, 'acknowledged'), 0, -ACKNOWLEDGED_MAX - 1)
  end
  if sandbox_id and sandbox_id ~= '' then
    redis.call('HDEL', node_key(node_id, 'claims'), sandbox_id)
    if state == 'settled' then
      redis.call('PEXPIRE', key('sandbox:' .. sandbox_id), integer(retention))
    else
      redis.call('DEL', key('sandbox:' .. sandbox_id))
    end
  end
  if reservation.lifecycle == 'explicit' or (state == 'settled' and (reason == 'listed' or reason == 'deleted')) then
    explain_growth(node_id, tonumber(reservation.cpu_count), tonumber(reservation.memory_bytes), 1)
  end
  if state == 'cancelled' or (state == 'expired' and reservation.lifecycle == 'explicit') then
    give_back(reservation)
  end
  redis.call('HINCRBY', key('stats'), 'reservations_' .. state, 1)
  purge_finished(now, 4)
end
local function expire_reservation(reservation, now)
  if reservation.state == 'confirmed' then
    finish_reservation(reservation, 'settled', 'unobserved', now)
  else
    finish_reservation(reservation, 'expired', 'deadline', now)
  end
end
local function end_when_due(reservation, now)
  if reservation.state ~= 'pending' and reservation.state ~= 'confirmed' then return end
  local deadline = tonumber(reservation.expires_at_ms)
  local node_is_gone, gone_at = given_up(reservation.node_id, now)
  if node_is_gone and gone_at < deadline then
    finish_reservation(reservation, reservation.state == 'confirmed' and 'settled' or 'expired', 'node_removed', now)
  elseif deadline <= now then
    expire_reservation(reservation, now)
  end
end
local function expire_due(now, slice)
  local due = redis.call('ZRANGEBYSCORE', key('expiry'), '-inf', integer(now), 'LIMIT', 0, slice)
  for _, reservation_id in ipairs(due) do
    local reservation = read_reservation(reservation_id)
    if reservation then
      end_when_due(reservation, now)
    else
      redis.call('ZREM', key('expiry'), reservation_id)
    end
  end
  return #due
end
local function parse_binding(text)
  local recorded_at_ms, node_id = string.match(text, '^(%d+) (.*)$')
  return { node_id = node_id, recorded_at_ms = tonumber(recorded_at_ms) }
end
local function binding_of(sandbox_id)
  local text = redis.call('HGET', key('bindings'), sandbox_id)
  return text and parse_binding(text) or nil
end
local function is_listed(node_id, sandbox_id)
  return redis.call('SISMEMBER', node_key(node_id, 'sandboxes'), sandbox_id) == 1
end
local function by_holder(sandbox_ids, unbound)
  local held = {}
  for index, text in ipairs(redis.call('HMGET', key('bindings'), unpack(sandbox_ids))) do
    local holder = text and parse_binding(text).node_id or unbound
    held[holder] = held[holder] or {}
    held[holder][#held[holder] + 1] = sandbox_ids[index]
  end
  return held
end
local function unlist(node_id, sandbox_ids)
  if redis.call('SREM', node_key(node_id, 'sandboxes'), unpack(sandbox_ids)) > 0
    and redis.call('EXISTS', node_key(node_id)) == 1 then
    redis.call('HDEL', node_key(node_id), 'roster_digest')
    redis.call('HINCRBY', node_key(node_id), 'roster_edits', 1)
  end
end
local function forget_assignments(node_id, sandbox_ids)
  redis.call('ZREM', node_key(node_id, 'assigned'), unpack(sandbox_ids))
  redis.call('ZREM', key('assigned'), unpack(sandbox_ids))
end
local function unbind(node_id, sandbox_ids)
  if #sandbox_ids == 0 then return end
  unlist(node_id, sandbox_ids)
  local own = by_holder(sandbox_ids, node_id)[node_id]
  if not own then return end
  redis.call('HDEL', key('bindings'), unpack(own))
  forget_assignments(node_id, own)
end
local function bind(node_id, sandbox_id, now)
  local earlier = binding_of(sandbox_id)
  if earlier and earlier.node_id ~= node_id then
    unlist(earlier.node_id, { sandbox_id })
    forget_assignments(earlier.node_id, { sandbox_id })
  end
  redis.call('HSET', key('bindings'), sandbox_id, integer(now) .. ' ' .. node_id)
  if not is_listed(node_id, sandbox_id) then
    redis.call('ZADD', node_key(node_id, 'assigned'), integer(now), sandbox_id)
    redis.call('ZADD', key('assigned'), integer(now), sandbox_id)
  end
end
local function bind_listed(node_id, sandbox_ids, now)
  if #sandbox_ids == 0 then return end
  redis.call('SADD', node_key(node_id, 'sandboxes'), unpack(sandbox_ids))
  local value = integer(now) .. ' ' .. node_id
  for holder, held in pairs(by_holder(sandbox_ids, '')) do
    if holder == node_id then
      forget_assignments(node_id, held)
    else
      if holder ~= '' then
        unlist(holder, held)
        forget_assignments(holder, held)
      end
      local bound = {}
      for _, sandbox_id in ipairs(held) do bound[#bound + 1], bound[#bound + 2] = sandbox_id, value end
      redis.call('HSET', key('bindings'), unpack(bound))
    end
  end
end
local function drop_unlisted(node_id, binding_grace_ms, now)
  unbind(node_id, redis.call('ZRANGEBYSCORE', node_key(node_id, 'assigned'), '-inf',
    integer(now - binding_grace_ms), 'LIMIT', 0, 500))
end
local function valid_until(binding, sandbox_id, last_seen_ms, binding_ttl_ms)
  local since = binding.recorded_at_ms
  if last_seen_ms and last_seen_ms > since and is_listed(binding.node_id, sandbox_id) then since = last_seen_ms end
  return since + binding_ttl_ms
end
local findings = { 'recounted' }
local function finding(subject, rule, detail)
  findings[#findings + 1] = subject
  findings[#findings + 1] = rule
  findings[#findings + 1] = detail
end
local function shown(value)
  if not value or value == '' then return 'nothing' end
  return type(value) == 'number' and integer(value) or tostring(value)
end
local function is_open(state)
  return state == 'pending' or state == 'confirmed'
end
local function assigned_to(node_id, sandbox_id)
  return redis.call('ZSCORE', node_key(node_id, 'assigned'), sandbox_id)
end
local function recount_bound(subject, sandbox_id, binding)
  local node_id = binding.node_id
  local assigned, due = assigned_to(node_id, sandbox_id), redis.call('ZSCORE', key('assigned'), sandbox_id)
  if is_listed(node_id, sandbox_id) then
    if assigned or due then finding(subject, 'assigned', 'is in the roster of node ' .. node_id .. ' and still awaited') end
  elseif tonumber(assigned or -1) ~= binding.recorded_at_ms or tonumber(due or -1) ~= binding.recorded_at_ms then
    finding(subject, 'bound', 'is bound to node ' .. node_id .. ', which neither lists nor awaits it as recorded')
  end
end
for index = 2, #ARGV, 2 do
  local node_id, sandbox_id = ARGV[index], ARGV[index + 1]
  local subject, binding = 'sandbox ' .. sandbox_id, binding_of(sandbox_id)
  if binding then
    recount_bound(subject, sandbox_id, binding)
  elseif redis.call('ZSCORE', key('assigned'), sandbox_id) then
    finding(subject, 'assigned', 'is awaited but not bound')
  end
  if node_id ~= '' and (not binding or binding.node_id ~= node_id) then
    local bound_to = binding and 'node ' .. binding.node_id or 'nothing'
    if is_listed(node_id, sandbox_id) then
      finding(subject, 'roster', 'is in the roster of node ' .. node_id .. ' but bound to ' .. bound_to)
    end
    if assigned_to(node_id, sandbox_id) then
      finding(subject, 'assigned', 'is awaited by node ' .. node_id .. ' but bound to ' .. bound_to)
    end
  end
end
return findings
