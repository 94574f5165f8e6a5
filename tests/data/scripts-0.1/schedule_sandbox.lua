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
local function read_clock(given, last)
  local now
  if given ~= '' then
    now = tonumber(given)
  else
    local time = redis.call('TIME')
    now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
  end
  if last and tonumber(last) > now then return tonumber(last) end
  return now
end
local function read_cursors(strategy)
  local hash = key('cursors')
  if strategy == 'least_loaded' then
    local found = redis.call('HMGET', hash, 'now', 'journal_base', 'ties', 'ordinary_ties')
    return { now = found[1], journal_base = found[2], ties = found[3], ordinary_ties = found[4] }
  end
  local found = redis.call('HMGET', hash, 'now', 'journal_base', 'ties', 'round_robin', 'ordinary', 'groups', 'fallback')
  return {
    now = found[1], journal_base = found[2], ties = found[3], round_robin = found[4] or nil, ordinary = found[5] or nil,
    groups = found[6] or nil, fallback = found[7] or nil,
  }
end
local function read_settings()
  local found = redis.call('HMGET', KEYS[1], 'strategy', 'admission', 'report_ttl_ms', 'placement_reservation_ttl_ms',
    'overcommit_cpu', 'overcommit_memory', 'locality_enabled', 'refresh_after')
  if not found[1] then return nil end
  return {
    strategy = found[1],
    admits = found[1] == 'least_loaded' or found[2] == 'always',
    report_ttl_ms = tonumber(found[3]),
    placement_reservation_ttl_ms = tonumber(found[4]),
    cpu_unlimited = found[5] == 'unlimited',
    memory_unlimited = found[6] == 'unlimited',
    locality = found[7] == '1',
    refresh_after = found[8] or nil,
  }
end
local function read_binding_settings(settings)
  local found = redis.call('HMGET', KEYS[1], 'binding_ttl_ms', 'binding_grace_ms')
  settings.binding_ttl_ms = tonumber(found[1])
  settings.binding_grace_ms = tonumber(found[2])
end
local function read_group_settings(settings)
  local found = redis.call('HMGET', KEYS[1], 'group_max_sandbox_count', 'group_max_cpu_count', 'group_max_memory_mb',
    'group_placement', 'max_open_groups')
  settings.group_max_sandbox_count = tonumber(found[1])
  settings.group_max_cpu_count = tonumber(found[2])
  settings.group_max_memory_mb = tonumber(found[3])
  settings.group_placement = found[4]
  settings.max_open_groups = tonumber(found[5])
end
local function read_request(first)
  local excluded_count = tonumber(ARGV[first + 6])
  local request = {
    kind = ARGV[first], creation = ARGV[first] ~= 'ordinary',
    cpu = tonumber(ARGV[first + 1]), memory_mb = tonumber(ARGV[first + 2]),
    template_id = ARGV[first + 3], group_key = ARGV[first + 4], entropy = tonumber(ARGV[first + 5]),
    excluded = {}, locality = {},
  }
  for index = first + 7, first + 6 + excluded_count do request.excluded[ARGV[index]] = true end
  for index = first + 7 + excluded_count, #ARGV do request.locality[#request.locality + 1] = ARGV[index] end
  if request.kind == 'template' and request.template_id ~= '' then
    local known = redis.call('HMGET', key('template:' .. request.template_id), 'cpu_count', 'memory_mb')
    request.cpu = tonumber(known[1] or '') or request.cpu
    request.memory_mb = tonumber(known[2] or '') or request.memory_mb
  elseif request.kind == 'cold' then
    if request.cpu == 0 then request.cpu = tonumber(redis.call('HGET', KEYS[1], 'cold_default_cpu_count')) end
    if request.memory_mb == 0 then request.memory_mb = tonumber(redis.call('HGET', KEYS[1], 'cold_default_memory_mb')) end
  end
  return request
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
local UNKNOWN = 2 ^ 400
local UNFIT_CPU = 2 ^ 600
local UNFIT_MEMORY = 2 ^ 800
local UNFIT_FLOOR = 2 ^ 500
local SAFE_INTEGER_MAX = 2 ^ 53 - 1
local MIB = 1024 * 1024
local function shape_of(creation, cpu, memory_mb, variant)
  local name = 'ordinary'
  if creation then
    name = (cpu > 0 and integer(cpu) or '-') .. ':' .. (memory_mb > 0 and integer(memory_mb) or '-')
  end
  if variant ~= 'any' then name = name .. ':' .. variant end
  return {
    name = name, key = key('shape:' .. name), creation = creation, variant = variant,
    cpu = creation and cpu or 0, memory = creation and memory_mb * MIB or 0,
  }
end
local function holds_pool(variant, pool)
  if variant == 'any' then return pool == 'r' or pool == 'c' end
  if variant == 'ready' then return pool == 'r' end
  return pool == 'u'
end
local function pressure_of(load, capacity)
  if capacity < 0 then return nil end
  if capacity == 0 then return load == 0 and 0 or 2 ^ 60 end
  return load / capacity
end
local function overfull(load, requested, capacity)
  if requested > 0 then return load + requested > capacity end
  return load >= capacity
end
local function score_of(row, shape, settings)
  local cpu_load = row.cpu_load + row.pending_cpu
  local memory_load = row.memory_load + row.pending_memory
  local cpu = pressure_of(cpu_load + shape.cpu, row.cpu_capacity)
  local memory = pressure_of(memory_load + shape.memory, row.memory_capacity)
  local pressure = math.max(cpu or 0, memory or 0)
  if shape.creation then
    if cpu and not settings.cpu_unlimited and overfull(cpu_load, shape.cpu, row.cpu_capacity) then
      return math.max(pressure, 2 ^ -60) * UNFIT_CPU, 'insufficient_cpu'
    end
    if (memory and not settings.memory_unlimited and overfull(memory_load, shape.memory, row.memory_capacity))
      or row.pending_memory + shape.memory > SAFE_INTEGER_MAX then
      return math.max(pressure, 2 ^ -60) * UNFIT_MEMORY, 'insufficient_memory'
    end
  end
  local unknown = row.pool == 'c' or not (cpu or memory)
    or (not cpu and row.pending_cpu + shape.cpu > 0)
    or (not memory and row.pending_memory + shape.memory > 0)
  return unknown and UNKNOWN or pressure, nil
end
local function note_shape(shape, now)
  redis.call('HSET', key('shapes'), shape.name,
    string.format('%d,%d,', shape.cursor, now) .. (shape.building and 'b' .. shape.building or 'c'))
end
local function open_shape(shape, base)
  shape.base = (tonumber(base or '') or 0) + journal_trimmed
  shape.total = shape.base + redis.call('LLEN', key('journal'))
  local state = redis.call('HGET', key('shapes'), shape.name)
  if state then
    local cursor, stage, position = string.match(state, '^(%d+),%d+,(%a)(.*)$')
    shape.cursor = tonumber(cursor)
    if stage == 'b' then shape.building = position end
  end
  return shape.cursor == shape.total and not shape.building
end
local function advance_shape(shape, settings, now, node_id, old_member, journal_length)
  local row = row_of(node_id)
  redis.call('ZREM', shape.key, old_member)
  if holds_pool(shape.variant, row.pool) then
    redis.call('ZADD', shape.key, string.format('%.17g', (score_of(row, shape, settings))), rows[node_id].member)
  end
  shape.cursor = shape.base + journal_length
  note_shape(shape, now)
end
local function among_ties(shape, excluded, counter)
local function member_at(shape, rank)
  return redis.call('ZRANGE', shape.key, rank, rank)[1]
end
local function same_rank(member, other)
  return string.sub(member, 1, 30) == string.sub(other, 1, 30)
end
local function last_tied(shape, first, member, score)
  local low, high = first, redis.call('ZCOUNT', shape.key, '-inf', score) - 1
  if same_rank(member, member_at(shape, high)) then return high end
  while low + 1 < high do
    local middle = math.floor((low + high) / 2)
    if same_rank(member, member_at(shape, middle)) then low = middle else high = middle end
  end
  return low
end
local function excluded_ranks(shape, excluded)
  local ranks = {}
  for node_id in pairs(excluded) do
    local row = row_of(node_id)
    local rank = row and redis.call('ZRANK', shape.key, row_member(row, node_id))
    if rank then ranks[#ranks + 1] = rank end
  end
  table.sort(ranks)
  return ranks
end
local function choose_among_ties(shape, excluded, counter)
  local ranks, first = excluded_ranks(shape, excluded), 0
  for _, rank in ipairs(ranks) do
    if rank == first then first = first + 1 end
  end
  local head = redis.call('ZRANGE', shape.key, first, first, 'WITHSCORES')
  if not head[1] then return nil end
  local last = last_tied(shape, first, head[1], head[2])
  local tied = last - first + 1
  for _, rank in ipairs(ranks) do
    if rank >= first and rank <= last then tied = tied - 1 end
  end
  local chosen = first + counter % tied
  for _, rank in ipairs(ranks) do
    if rank >= first and rank <= chosen then chosen = chosen + 1 end
  end
  return string.sub(member_at(shape, chosen), 31), tonumber(head[2])
end
  return choose_among_ties(shape, excluded, counter)
end
local function choose_ranked(shape, excluded, counter)
  if next(excluded) then return among_ties(shape, excluded, counter) end
  local head = redis.call('ZRANGE', shape.key, '0', '1', 'WITHSCORES')
  local member, score = head[1], head[2]
  if not member then return nil end
  local counts = string.sub(member, 1, 30)
  if head[4] == score and string.sub(head[3], 1, 30) == counts then
    local last = redis.call('ZCOUNT', shape.key, '-inf', score) - 1
    local found = redis.call('ZRANGE', shape.key, integer(last), integer(last))[1]
    if string.sub(found, 1, 30) ~= counts then return among_ties(shape, excluded, counter) end
    local chosen = counter % (last + 1)
    if chosen < last then found = redis.call('ZRANGE', shape.key, integer(chosen), integer(chosen))[1] end
    member = found
  end
  return string.sub(member, 31), tonumber(score)
end
local function find_candidates(context)
  context.set, context.variant, context.degraded = 'candidates', 'any', false
  if context.settings.strategy == 'grouped_round_robin' then
    context.set, context.variant = 'ready', 'ready'
  elseif redis.call('ZCARD', key('candidates')) == 0 and redis.call('ZCARD', key('last_resort')) > 0
    and redis.call('ZCARD', key('over_limit')) == 0 and redis.call('ZCARD', key('waiting')) == 0 then
    context.set, context.variant, context.degraded = 'last_resort', 'degraded', true
  end
end
local function rank_candidates(request, context)
  local counter = tonumber(context.cursors[request.creation and 'ties' or 'ordinary_ties'] or '') or 0
  if context.located then return context.rank_located(counter) end
  local node_id, score = choose_ranked(context.shape, request.excluded, counter)
  if not node_id or (context.admits and score >= UNFIT_FLOOR) then return nil end
  return node_id
end
local settings = read_settings()
if not settings then return { 'uninitialised' } end
if settings.refresh_after then return { 'refresh' } end
local cursors = read_cursors(settings.strategy)
local now = read_clock(ARGV[1], cursors.now)
local reservation_id = ARGV[2]
local request = read_request(8)
if request.creation and redis.call('EXISTS', reservation_key(reservation_id)) == 1 then
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
  local earlier = read_reservation(reservation_id)
  end_when_due(earlier, now)
  save_rows()
  local fields = redis.call('HGETALL', reservation_key(reservation_id))
  if earlier.state == 'cancelled' or earlier.state == 'expired' or earlier.fingerprint ~= ARGV[3] then
    return { 'conflict', fields }
  end
  local endpoint = redis.call('HGET', node_key(earlier.node_id), 'endpoint') or ''
  return { 'replayed', earlier.node_id, endpoint, earlier.strategy, earlier.degraded or '0', fields }
end
local swept, now_ms = true, integer(now)
if redis.call('ZCOUNT', key('seen'), '-inf', '(' .. integer(now - settings.report_ttl_ms)) > 0 then
local SILENCE_SLICE = 1024
local function pool_of(discovery, status, over_limit, stale)
  if discovery == 'lingering' then return 'l' end
  if stale or status == 'unhealthy' then return over_limit and 'x' or 'u' end
  if over_limit then return 'o' end
  return status == 'ready' and 'r' or 'c'
end
local function waiting_pool(pool)
  return (pool == 'r' or pool == 'c' or pool == 'u') and 'w' or pool
end
local function retire_silent(now, report_ttl_ms, binding_ttl_ms)
  local overdue = redis.call('ZRANGEBYSCORE', key('seen'), '-inf', '(' .. integer(now - report_ttl_ms),
    'WITHSCORES', 'LIMIT', 0, SILENCE_SLICE)
  for index = 1, #overdue, 2 do
    local node_id, last_seen = overdue[index], overdue[index + 1]
    redis.call('ZREM', key('seen'), node_id)
    redis.call('ZADD', key('silent'), last_seen, node_id)
    redis.call('ZADD', key('forgotten'), tonumber(last_seen) + binding_ttl_ms, node_id)
    local row = row_of(node_id)
    if row then
      if row.pool == 'r' or row.pool == 'c' then row.pool = 'u' end
      if row.pool == 'o' then row.pool = 'x' end
    end
  end
  return #overdue / 2
end
  read_binding_settings(settings)
  local retired = retire_silent(now, settings.report_ttl_ms, settings.binding_ttl_ms)
  save_rows()
  if retired >= SILENCE_SLICE then return { 'again', 'silence' } end
end
if redis.call('ZCOUNT', key('expiry'), '-inf', now_ms) > 0 then
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
  swept = expire_due(now, EXPIRY_SLICE) < EXPIRY_SLICE
  save_rows()
end
local context = { settings = settings, cursors = cursors, now = now, admits = settings.admits and request.creation }
local ranked = settings.strategy == 'least_loaded'
find_candidates(context)
if settings.strategy == 'grouped_round_robin' then read_group_settings(settings) end
context.shape = shape_of(request.creation, request.cpu, request.memory_mb, context.variant)
context.indexed = ranked or context.admits or (request.creation and settings.group_placement == 'least_loaded')
if context.indexed and not open_shape(context.shape, cursors.journal_base) then
local SHAPES_MAX = 128
local SHAPE_ENTRIES_MAX = 2000000
local BUILD_SLICE = 2000
local CATCH_UP_SLICE = 1000
local function add_rows(shape, settings, node_ids, found)
  local entries = {}
  for index, node_id in ipairs(node_ids) do
    local row = found[index] and parse_row(found[index])
    if row and holds_pool(shape.variant, row.pool) then
      entries[#entries + 1] = string.format('%.17g', (score_of(row, shape, settings)))
      entries[#entries + 1] = row_member(row, node_id)
    end
  end
  for first = 1, #entries, 1000 do
    redis.call('ZADD', shape.key, unpack(entries, first, math.min(first + 999, #entries)))
  end
end
local function add_nodes(shape, settings, node_ids)
  for first = 1, #node_ids, 1000 do
    local chunk = {}
    for index = first, math.min(first + 999, #node_ids) do chunk[#chunk + 1] = node_ids[index] end
    add_rows(shape, settings, chunk, redis.call('HMGET', key('loads'), unpack(chunk)))
  end
end
local function evict_shapes(nodes)
  local allowed = math.max(1, math.min(SHAPES_MAX, math.floor(SHAPE_ENTRIES_MAX / math.max(nodes, 1))))
  local known = redis.call('HGETALL', key('shapes'))
  local by_use = {}
  for index = 1, #known, 2 do
    local used = string.match(known[index + 1], '^%d+,(%d+),')
    by_use[#by_use + 1] = { name = known[index], used = tonumber(used) }
  end
  table.sort(by_use, function(a, b) return a.used < b.used or (a.used == b.used and a.name < b.name) end)
  for index = 1, #by_use - allowed + 1 do
    redis.call('UNLINK', key('shape:' .. by_use[index].name))
    redis.call('HDEL', key('shapes'), by_use[index].name)
  end
end
local function build(shape, settings)
  local from = shape.building == '' and '-' or '(' .. shape.building
  local node_ids = redis.call('ZRANGEBYLEX', key('nodes'), from, '+', 'LIMIT', 0, BUILD_SLICE)
  add_nodes(shape, settings, node_ids)
  if #node_ids < BUILD_SLICE then
    shape.building = nil
    return true
  end
  shape.building = node_ids[#node_ids]
  return false
end
local function catch_up(shape, settings)
  local from = shape.cursor - shape.base
  local entries = redis.call('LRANGE', key('journal'), from, from + CATCH_UP_SLICE - 1)
  local node_ids, outdated, met = {}, {}, {}
  for _, member in ipairs(entries) do
    local node_id = string.sub(member, 31)
    if not met[node_id] then
      met[node_id] = true
      node_ids[#node_ids + 1] = node_id
      outdated[#outdated + 1] = member
    end
  end
  if #outdated > 0 then
    redis.call('ZREM', shape.key, unpack(outdated))
    add_nodes(shape, settings, node_ids)
  end
  shape.cursor = shape.cursor + #entries
end
local function mend(shape, settings, now)
  local total = shape.total
  if not shape.cursor or shape.cursor < shape.base or shape.cursor > total then
    if shape.cursor then redis.call('UNLINK', shape.key) else evict_shapes(redis.call('ZCARD', key('nodes'))) end
    shape.cursor, shape.building = total, ''
  end
  local complete = not shape.building or build(shape, settings)
  if complete then catch_up(shape, settings) end
  note_shape(shape, now)
  return complete and shape.cursor == total
end
  if not mend(context.shape, settings, now) then return { 'again', 'index' } end
end
if settings.locality and #request.locality > 0 then
local AT_ONCE = 256
local function artifact_scope(cluster_id, backend)
  return #cluster_id .. ':' .. cluster_id .. '|' .. #backend .. ':' .. backend
end
local function scope_of(artifact)
  local length = tonumber(string.match(artifact, '^(%d+):'))
  local backend_at = #tostring(length) + 1 + length + 2
  local backend_length = string.match(artifact, '^(%d+):', backend_at)
  return string.sub(artifact, 1, backend_at + #backend_length + tonumber(backend_length))
end
local function artifact_key(artifact) return key('artifact:' .. artifact) end
local function park(name, kind, about)
  local number = integer(redis.call('INCR', key('sequence')))
  redis.call('RENAME', name, key('artifact_backlog:' .. number))
  redis.call('RPUSH', key('artifact_backlog'), kind .. '|' .. number .. '|' .. about)
  return number
end
local function drop_artifact(artifact)
  if redis.call('ZREM', key('artifacts'), artifact) == 1 then
    local scope = scope_of(artifact)
    if redis.call('HINCRBY', key('artifact_scopes'), scope, -1) <= 0 then
      redis.call('HDEL', key('artifact_scopes'), scope)
    end
  end
  local name = artifact_key(artifact)
  local providers = redis.call('HLEN', name)
  if providers > AT_ONCE then
    park(name, 'artifact', artifact)
  elseif providers > 0 then
    for _, node_id in ipairs(redis.call('HKEYS', name)) do
      redis.call('SREM', node_key(node_id, 'artifacts'), artifact)
    end
    redis.call('DEL', name)
  end
end
local function drop_provider(artifact, node_id)
  redis.call('HDEL', artifact_key(artifact), node_id)
  if redis.call('EXISTS', artifact_key(artifact)) == 0 then drop_artifact(artifact) end
end
local function forget_artifacts(node_id)
  local name = node_key(node_id, 'artifacts')
  local count = redis.call('SCARD', name)
  if count > AT_ONCE then
    redis.call('HSET', key('artifact_epochs'), node_id, park(name, 'node', node_id))
  elseif count > 0 then
    local artifacts = redis.call('SMEMBERS', name)
    redis.call('DEL', name)
    for _, artifact in ipairs(artifacts) do drop_provider(artifact, node_id) end
  end
end
local function work_off_artifacts()
  local entry = redis.call('LINDEX', key('artifact_backlog'), 0)
  if not entry then return end
  local kind, number, about = string.match(entry, '^(%a+)|(%d+)|(.*)$')
  local parked = key('artifact_backlog:' .. number)
  if kind == 'artifact' then
    local slice = redis.call('HSCAN', parked, '0', 'COUNT', AT_ONCE)[2]
    for index = 1, #slice, 2 do
      local node_id = slice[index]
      redis.call('HDEL', parked, node_id)
      if redis.call('HEXISTS', artifact_key(about), node_id) == 0 then
        redis.call('SREM', node_key(node_id, 'artifacts'), about)
      end
    end
  else
    local epoch = redis.call('HGET', key('artifact_epochs'), about)
    for _, artifact in ipairs(redis.call('SPOP', parked, AT_ONCE)) do
      local recorded = redis.call('HGET', artifact_key(artifact), about)
      if recorded and recorded ~= epoch then drop_provider(artifact, about) end
    end
    if redis.call('EXISTS', parked) == 0 and epoch == number then
      redis.call('HDEL', key('artifact_epochs'), about)
    end
  end
  if redis.call('EXISTS', parked) == 0 then redis.call('LPOP', key('artifact_backlog')) end
end
local function provider_check()
  if redis.call('EXISTS', key('artifact_epochs')) == 0 then return function() return true end end
  return function(node_id, recorded)
    local epoch = redis.call('HGET', key('artifact_epochs'), node_id)
    return not epoch or epoch == recorded
  end
end
local function ready_peer(node_id, cluster_id, backend, now, report_ttl_ms)
  local about = redis.call('HMGET', node_key(node_id),
    'last_seen_ms', 'discovery', 'status', 'cluster_id', 'p2p_backend', 'p2p_address')
  if not about[1] or about[2] ~= 'active' or about[3] ~= 'ready' then return nil end
  if now - tonumber(about[1]) > report_ttl_ms then return nil end
  if (about[5] or '') == '' or (about[6] or '') == '' then return nil end
  if cluster_id ~= '' and about[4] ~= cluster_id then return nil end
  if backend ~= '' and about[5] ~= backend then return nil end
  return about[5], about[6]
end
local SCOPES_MOST = 64
local PROVIDERS_MOST = 1024
local VISITS_MOST = 8192
local function best_located(keys, eligible)
  local scopes = redis.call('HKEYS', key('artifact_scopes'))
  local counts, scope_by_node, score_by_node = provider_check(), {}, {}
  local highest, visits = 0, 0
  for scope_index = 1, math.min(#scopes, SCOPES_MOST) do
    local scope = scopes[scope_index]
    for _, wanted in ipairs(keys) do
      if visits > VISITS_MOST then break end
      local found = redis.call('HSCAN', artifact_key(scope .. '|' .. wanted), '0', 'COUNT', PROVIDERS_MOST)[2]
      for index = 1, #found, 2 do
        local node_id = found[index]
        if scope_by_node[node_id] == nil then
          local cluster_id, backend = eligible(node_id)
          scope_by_node[node_id] = cluster_id and backend and artifact_scope(cluster_id, backend) or false
        end
        if scope_by_node[node_id] == scope and counts(node_id, found[index + 1]) then
          score_by_node[node_id] = (score_by_node[node_id] or 0) + 1
          highest = math.max(highest, score_by_node[node_id])
        end
      end
      visits = visits + #found / 2
    end
  end
  if highest == 0 then return nil end
  local best = {}
  for node_id, score in pairs(score_by_node) do
    if score == highest then best[#best + 1] = node_id end
  end
  return best
end
local function is_acceptable(node_id, request, context)
  if request.excluded[node_id] then return false end
  if context.located and not context.located[node_id] then return false end
  if not request.creation then return true end
  local row = row_of(node_id)
  if context.admits then
    local _, reason = score_of(row, context.shape, context.settings)
    return reason == nil
  end
  return row.pending_memory + context.shape.memory <= SAFE_INTEGER_MAX
end
local function rank_list(node_ids, counter)
  local best, counts, tied
  for _, node_id in ipairs(node_ids) do
    local row = row_of(node_id)
    local score, own = (score_of(row, context.shape, context.settings)), string.sub(row_member(row, ''), 1, 30)
    if not best or score < best or (score == best and own < counts) then
      best, counts, tied = score, own, { node_id }
    elseif score == best and own == counts then
      tied[#tied + 1] = node_id
    end
  end
  return tied[1 + counter % #tied]
end
local function locate()
  local best = best_located(request.locality, function(node_id)
    local row = row_of(node_id)
    if not row or not holds_pool(context.variant, row.pool) or not is_acceptable(node_id, request, context) then
      return nil
    end
    local about = redis.call('HMGET', node_key(node_id), 'cluster_id', 'p2p_backend')
    return about[1] or '', about[2] or ''
  end)
  if not best or #best == 0 then return end
  table.sort(best)
  context.located = {}
  for _, node_id in ipairs(best) do context.located[node_id] = true end
  context.rank_located = function(counter) return rank_list(best, counter) end
  context.random_located = function() return best[1 + request.entropy % #best] end
  context.next_located = function(cursor)
    for _, node_id in ipairs(best) do
      if not cursor or node_id > cursor then return node_id end
    end
    return best[1]
  end
end
  locate()
end
if ranked then
  context.node_id, context.moves = rank_candidates(request, context), request.creation and 'ties' or 'ordinary_ties'
else
local function rotate(set, cursor, accepts)
  local position, wrapped, looked, batch = cursor and '(' .. cursor or '-', cursor == nil, 0, 1
  while looked <= 128 do
    local ceiling = wrapped and cursor and '[' .. cursor or '+'
    local node_ids = redis.call('ZRANGEBYLEX', key(set), position, ceiling, 'LIMIT', '0', batch == 1 and '1' or '64')
    for _, node_id in ipairs(node_ids) do
      if accepts(node_id) then return node_id end
    end
    looked = looked + #node_ids
    if #node_ids == batch then
      position = '(' .. node_ids[batch]
    elseif wrapped then
      return nil
    else
      wrapped, position = true, '-'
    end
    batch = 64
  end
  return nil
end
local function pick_random(set, entropy, excluded)
  local ranks = {}
  for node_id in pairs(excluded) do
    local rank = redis.call('ZRANK', key(set), node_id)
    if rank then ranks[#ranks + 1] = rank end
  end
  local count = redis.call('ZCARD', key(set)) - #ranks
  if count <= 0 then return nil end
  table.sort(ranks)
  local chosen = entropy % count
  for _, rank in ipairs(ranks) do
    if rank <= chosen then chosen = chosen + 1 end
  end
  return redis.call('ZRANGE', key(set), chosen, chosen)[1]
end
local function is_acceptable(node_id, request, context)
  if request.excluded[node_id] then return false end
  if context.located and not context.located[node_id] then return false end
  if not request.creation then return true end
  local row = row_of(node_id)
  if context.admits then
    local _, reason = score_of(row, context.shape, context.settings)
    return reason == nil
  end
  return row.pending_memory + context.shape.memory <= SAFE_INTEGER_MAX
end
local function accepts(node_id)
  return is_acceptable(node_id, request, context)
end
local function next_in_turn(name)
  if context.located then return context.next_located(context.cursors[name]) end
  local node_id = rotate(context.set, context.cursors[name], accepts)
  if not node_id and context.admits then node_id = rank_candidates(request, context) end
  return node_id
end
local function by_chance()
  local node_id = pick_random(context.set, request.entropy, request.excluded)
  if not node_id or accepts(node_id) then return node_id end
  node_id = rotate(context.set, node_id, accepts)
  if not node_id and context.admits then node_id = rank_candidates(request, context) end
  return node_id
end
local function choose_unranked()
  local strategy = context.settings.strategy
  if strategy == 'grouped_round_robin' then
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
local function group_charge()
  local charge = { cpu = request.cpu, memory_mb = request.memory_mb }
  if request.kind == 'cold' then
    if charge.cpu == 0 then charge.cpu = context.settings.group_max_cpu_count end
    if charge.memory_mb == 0 then charge.memory_mb = context.settings.group_max_memory_mb end
  end
  return charge
end
local function group_obstacle(group, charge)
  if request.excluded[group.node_id] then return 'excluded' end
  if not redis.call('ZSCORE', key('ready'), group.node_id) then return 'node_left' end
  if not accepts(group.node_id) then return 'node_full' end
  if not has_room(group, charge, context.settings) then return 'budget' end
  return nil
end
local function choose_group_node()
  if not request.creation or request.group_key == '' then
    return next_in_turn('fallback'), 'fallback', request.creation and { action = 'fallback' } or nil
  end
  local charge, group = group_charge(), read_group(request.group_key)
  local obstacle = group and group_obstacle(group, charge)
  if group and not obstacle then
    return group.node_id, nil, { action = 'join', group = group, charge = charge }
  end
  local outcome = { action = 'open', charge = charge, closes = obstacle }
  if context.settings.group_placement == 'least_loaded' then
    return rank_candidates(request, context), 'ties', outcome
  end
  return next_in_turn('groups'), 'groups', outcome
end
    context.node_id, context.moves, context.group = choose_group_node()
  elseif strategy == 'random' then
    context.node_id = context.located and context.random_located() or by_chance()
  else
    context.moves = request.creation and 'round_robin' or 'ordinary'
    context.node_id = next_in_turn(context.moves)
  end
end
  choose_unranked()
end
local node_id = context.node_id
if not node_id then
  if not swept then return { 'overloaded', 'expiry' } end
local TOLD_APART_MAX = 1000
local function count_unfit(request, context)
  local shape, memory_floor = context.shape, string.format('%.17g', 2 ^ 700)
  local cpu = redis.call('ZCOUNT', shape.key, string.format('%.17g', UNFIT_FLOOR), '(' .. memory_floor)
  local memory = redis.call('ZCOUNT', shape.key, memory_floor, '+inf')
  for node_id in pairs(request.excluded) do
    local row = row_of(node_id)
    if row and holds_pool(shape.variant, row.pool) then
      local _, reason = score_of(row, shape, context.settings)
      if reason == 'insufficient_cpu' then cpu = cpu - 1 end
      if reason == 'insufficient_memory' then memory = memory - 1 end
    end
  end
  return cpu, memory
end
local function refusal(request, context)
  local function count(set) return redis.call('ZCARD', key(set)) end
  local reasons = {
    lingering = count('lingering'), over_limit = count('over_limit'), unhealthy = count('unhealthy'),
    not_ready = count('waiting'), excluded = 0,
  }
  if context.degraded then reasons.unhealthy = reasons.unhealthy - count('last_resort') end
  if context.set == 'ready' then reasons.not_ready = reasons.not_ready + count('candidates') - count('ready') end
  for node_id in pairs(request.excluded) do
    local row = row_of(node_id)
    if row and holds_pool(context.variant, row.pool) then reasons.excluded = reasons.excluded + 1 end
  end
  if context.admits then
    local cpu, memory = count_unfit(request, context)
    if cpu + memory > TOLD_APART_MAX then
      reasons.insufficient_capacity = cpu + memory
    else
      reasons.insufficient_cpu, reasons.insufficient_memory = cpu, memory
    end
  else
    reasons.insufficient_memory = count(context.set) - reasons.excluded
  end
  local reply = { 'refused', integer(count('nodes')) }
  for reason, nodes in pairs(reasons) do
    if nodes > 0 then
      reply[#reply + 1] = reason
      reply[#reply + 1] = integer(nodes)
    end
  end
  return reply
end
  redis.call('HINCRBY', key('stats'), 'refusals', 1)
  return refusal(request, context)
end
local moves, node = context.moves, node_key(node_id)
if moves == 'ties' or moves == 'ordinary_ties' then
  redis.call('HSET', key('cursors'), 'now', now_ms, moves, integer((tonumber(cursors[moves] or '') or 0) + 1))
else
  redis.call('HSET', key('cursors'), 'now', now_ms, moves or 'now', moves and node_id or now_ms)
end
local degraded = context.degraded and '1' or '0'
local endpoint = redis.call('HGET', node, 'endpoint') or ''
local decision = { 'placed', node_id, endpoint, settings.strategy, degraded, {} }
if not request.creation then
  if context.indexed then note_shape(context.shape, now) end
  return decision
end
local sequence = integer(redis.call('INCR', key('sequence')))
local ttl_ms = ARGV[5] ~= '' and tonumber(ARGV[5]) or settings.placement_reservation_ttl_ms
local cpu, memory = integer(request.cpu), integer(context.shape.memory)
local deadline = integer(now + ttl_ms)
local fields = {
  'node_id', node_id, 'state', 'pending', 'lifecycle', ARGV[4], 'cpu_count', cpu, 'memory_bytes', memory,
  'created_at_ms', now_ms, 'expires_at_ms', deadline, 'sequence', sequence,
}
if degraded == '1' then fields[#fields + 1], fields[#fields + 2] = 'degraded', '1' end
if request.template_id ~= '' then
  fields[#fields + 1], fields[#fields + 2] = 'template_id', request.template_id
end
if context.group then
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
local function evict_groups(max_open_groups)
  local surplus = redis.call('ZCARD', key('groups:recent')) - max_open_groups
  if surplus <= 0 then return end
  local evicted = redis.call('ZPOPMIN', key('groups:recent'), math.min(surplus, 100))
  for index = 1, #evicted, 2 do redis.call('HDEL', key('groups'), evicted[index]) end
  redis.call('HINCRBY', key('stats'), 'groups_evicted', #evicted / 2)
end
local function commit_group_outcome(outcome, request, node_id, sequence, context)
  local stats, settings = key('stats'), context.settings
  if outcome.action == 'fallback' then
    redis.call('HINCRBY', stats, 'groups_fallback', 1)
    return {}
  end
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
    evict_groups(settings.max_open_groups)
  end
  return {
    'group_key', group.key, 'group_sequence', integer(group.sequence), 'group_cpu', integer(outcome.charge.cpu),
    'group_memory_mb', integer(outcome.charge.memory_mb), 'group_charged', '1',
  }
end
  local remembered = commit_group_outcome(context.group, request, node_id, sequence, context)
  for _, value in ipairs(remembered) do fields[#fields + 1] = value end
end
redis.call('HSET', reservation_key(reservation_id), 'fingerprint', ARGV[3], 'strategy', settings.strategy,
  'caller', ARGV[7], 'request_id', ARGV[6], unpack(fields))
redis.call('ZADD', key('reservations'), sequence, reservation_id)
redis.call('ZADD', key('expiry'), deadline, reservation_id)
redis.call('ZADD', node .. ':reservations', sequence, reservation_id)
local row = row_of(node_id)
row.pending_cpu = row.pending_cpu + request.cpu
row.pending_memory = row.pending_memory + context.shape.memory
row.pending_count = row.pending_count + 1
local old_member = rows[node_id].member
local journal_length = save_rows()
if context.indexed then advance_shape(context.shape, settings, now, node_id, old_member, journal_length) end
decision[6] = fields
return decision
