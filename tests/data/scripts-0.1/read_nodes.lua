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
local function open_clock(given)
  return read_clock(given, redis.call('HGET', key('cursors'), 'now'))
end
local function close_clock(now)
  redis.call('HSET', key('cursors'), 'now', integer(now))
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
local STANDING = { u = 'unhealthy', x = 'unhealthy', o = 'over_limit', l = 'lingering', w = 'not_ready' }
local function derived_status(known, now, report_ttl_ms)
  local last_seen_ms = tonumber(known.last_seen_ms or '')
  if last_seen_ms and now - last_seen_ms > report_ttl_ms then return 'unhealthy' end
  if known.discovery == 'lingering' then return 'lingering' end
  return known.status or 'connecting'
end
local function standing(row, known, shape, settings, now)
  local last_seen_ms = tonumber(known.last_seen_ms or '')
  local stale = last_seen_ms ~= nil and now - last_seen_ms > settings.report_ttl_ms
  if stale and (row.pool == 'r' or row.pool == 'c' or row.pool == 'o') then return 'unhealthy' end
  if STANDING[row.pool] then return STANDING[row.pool] end
  if settings.strategy == 'grouped_round_robin' and row.pool ~= 'r' then return 'not_ready' end
  if settings.admits and shape.creation then
    local _, reason = score_of(row, shape, settings)
    return reason or ''
  end
  return ''
end
local function pressures(row, shape)
  local cpu = pressure_of(row.cpu_load + row.pending_cpu + shape.cpu, row.cpu_capacity)
  local memory = pressure_of(row.memory_load + row.pending_memory + shape.memory, row.memory_capacity)
  return cpu and string.format('%.17g', cpu) or '', memory and string.format('%.17g', memory) or ''
end
local settings = read_settings()
if not settings then return { 'uninitialised' } end
local now = open_clock(ARGV[1])
if redis.call('ZCOUNT', key('expiry'), '-inf', integer(now)) > 0 then
  local swept = expire_due(now, EXPIRY_SLICE) < EXPIRY_SLICE
  save_rows()
  if not swept then return { 'again', 'expiry' } end
end
local node_ids
if ARGV[2] ~= '' then
  node_ids = { ARGV[2] }
else
  node_ids = redis.call('ZRANGEBYLEX', key('nodes'), ARGV[3] == '' and '-' or '(' .. ARGV[3], '+', 'LIMIT', 0, ARGV[4])
end
local shape = shape_of(true, 0, 0, 'any')
local reply = { 'nodes' }
for _, node_id in ipairs(node_ids) do
  local row = row_of(node_id)
  if row then
    local fields = redis.call('HGETALL', node_key(node_id))
    local known = as_table(fields)
    local cpu, memory = pressures(row, shape)
    reply[#reply + 1] = {
      node_id, fields, derived_status(known, now, settings.report_ttl_ms), standing(row, known, shape, settings, now),
      cpu, memory, integer(row.pending_cpu), integer(row.pending_memory), integer(row.pending_count),
    }
  end
end
return reply
