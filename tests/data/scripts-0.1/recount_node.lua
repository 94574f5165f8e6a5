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
local function new_row(node_id)
  if row_of(node_id) == nil then
    rows[node_id].row = {
      pool = 'c', cpu_capacity = -1, memory_capacity = -1, cpu_load = 0, memory_load = 0,
      starting = 0, running = 0, paused = 0, pending_cpu = 0, pending_memory = 0, pending_count = 0,
    }
  end
  return rows[node_id].row
end
local function drop_row(node_id)
  row_of(node_id)
  rows[node_id].row = nil
end
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
local LIMITS = {
  'max_sandbox_count', 'max_sandbox_starting_count', 'max_cpu_used_percent', 'max_cpu_allocated_percent',
  'max_memory_used_percent', 'max_memory_allocated_percent', 'max_sandbox_count_including_paused',
  'max_allocated_cpu_including_paused', 'max_allocated_memory_bytes_including_paused',
}
local function percent(part, whole)
  if whole == 0 then return 0 end
  local hundreds = math.floor(part / whole)
  local rest = part - hundreds * whole
  local low, high = 0, 100
  while low < high do
    local middle = math.floor((low + high + 1) / 2)
    local quotient = math.floor(whole / 100)
    local remainder = whole - quotient * 100
    local needed = middle * quotient + math.ceil(middle * remainder / 100)
    if needed <= rest then low = middle else high = middle - 1 end
  end
  return hundreds * 100 + low
end
local function exceeded_limit(limits, figures)
  local values = {
    figures.sandbox_count, figures.sandbox_starting_count, figures.cpu_percent,
    percent(figures.allocated_cpu, figures.cpu_count),
    percent(figures.memory_used_bytes, figures.memory_total_bytes),
    percent(figures.allocated_memory_bytes, figures.memory_total_bytes),
    figures.sandbox_count + figures.paused_sandbox_count,
    figures.allocated_cpu + figures.paused_allocated_cpu,
    figures.allocated_memory_bytes + figures.paused_allocated_memory_bytes,
  }
  for index, name in ipairs(LIMITS) do
    local limit = limits[index] and tonumber(limits[index])
    if limit and values[index] > limit then return name end
  end
  return nil
end
local FIGURES = {
  'cpu_count', 'memory_total_bytes', 'allocated_cpu', 'allocated_memory_bytes', 'paused_allocated_cpu',
  'paused_allocated_memory_bytes', 'cpu_percent', 'memory_used_bytes', 'sandbox_count',
  'sandbox_starting_count', 'paused_sandbox_count', 'create_successes', 'create_fails', 'reported_at_unix_ms',
}
local function effective_capacity(advertised, per_mille)
  if advertised <= 0 then return -1 end
  if per_mille == 'unlimited' then return advertised end
  local factor = tonumber(per_mille)
  local thousands = math.floor(advertised / 1000)
  return math.min(thousands * factor + math.floor((advertised - thousands * 1000) * factor / 1000), 2 ^ 53 - 1)
end
local function read_observation_settings()
  local found = redis.call('HMGET', KEYS[1], 'overcommit_cpu', 'overcommit_memory', unpack(LIMITS))
  local limits = {}
  for index = 1, #LIMITS do limits[index] = found[index + 2] or nil end
  return { overcommit_cpu = found[1], overcommit_memory = found[2], limits = limits }
end
local function observe(row, discovery, status, figures, stale, settings)
  local over_limit
  if figures then
    row.cpu_capacity = effective_capacity(figures.cpu_count, settings.overcommit_cpu)
    row.memory_capacity = effective_capacity(figures.memory_total_bytes, settings.overcommit_memory)
    row.cpu_load = figures.allocated_cpu + figures.paused_allocated_cpu
    row.memory_load = figures.allocated_memory_bytes + figures.paused_allocated_memory_bytes
    row.starting, row.running, row.paused =
      figures.sandbox_starting_count, figures.sandbox_count, figures.paused_sandbox_count
    over_limit = exceeded_limit(settings.limits, figures)
  else
    row.cpu_capacity, row.memory_capacity, row.cpu_load, row.memory_load = -1, -1, 0, 0
    row.starting, row.running, row.paused = 0, 0, 0
  end
  row.pool = pool_of(discovery, status, over_limit, stale)
  return over_limit
end
local function read_figures(node_id)
  local found = redis.call('HMGET', node_key(node_id), 'last_seen_ms', unpack(FIGURES))
  if not found[1] then return nil end
  local figures = { last_seen_ms = tonumber(found[1]) }
  for index, name in ipairs(FIGURES) do figures[name] = tonumber(found[index + 1]) end
  return figures
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
local function about_reservation(id)
  return as_table_of(reservation_key(id), 'node_id', 'state', 'reason', 'sandbox_id', 'cpu_count', 'memory_bytes',
    'held_cpu', 'held_memory', 'held_count')
end
local function recount_open(node_id, subject)
  local cpu, memory, count = 0, 0, 0
  for _, id in ipairs(redis.call('ZRANGE', node_key(node_id, 'reservations'), 0, -1)) do
    local reservation = about_reservation(id)
    if not is_open(reservation.state) or reservation.node_id ~= node_id then
      finding(subject, 'reservations', 'lists reservation ' .. id .. ' as open; it is ' .. shown(reservation.state)
        .. ' on ' .. shown(reservation.node_id))
    else
      local held_cpu, held_memory, held_count = held_by(reservation)
      cpu, memory, count = cpu + held_cpu, memory + held_memory, count + held_count
      local sandbox_id = reservation.sandbox_id
      if sandbox_id and redis.call('HGET', node_key(node_id, 'claims'), sandbox_id) ~= id then
        finding(subject, 'claims', 'misses the claim of reservation ' .. id .. ' on sandbox ' .. sandbox_id)
      end
    end
  end
  return cpu, memory, count
end
local function recount_claims(node_id, subject)
  local cpu, memory, count = recount_open(node_id, subject)
  local claims = redis.call('HGETALL', node_key(node_id, 'claims'))
  for index = 1, #claims, 2 do
    local sandbox_id, id = claims[index], claims[index + 1]
    local reservation = about_reservation(id)
    if not is_open(reservation.state) or reservation.node_id ~= node_id or reservation.sandbox_id ~= sandbox_id then
      finding(subject, 'claims', 'sandbox ' .. sandbox_id .. ' is claimed by reservation ' .. id .. ', which is '
        .. shown(reservation.state) .. ' with sandbox ' .. shown(reservation.sandbox_id))
    end
  end
  for _, id in ipairs(redis.call('ZRANGE', node_key(node_id, 'acknowledged'), 0, -1)) do
    local reservation = about_reservation(id)
    if reservation.state ~= 'settled' or reservation.reason ~= 'counters' or reservation.sandbox_id then
      finding(subject, 'acknowledged', 'reservation ' .. id .. ' is no longer one that counters settled unnamed: '
        .. shown(reservation.state))
    end
  end
  return cpu, memory, count
end
local KEPT_MS = 86400000
local RESENT_MS = 60000
local MANY_TEMPLATES = 64
local MANY_TEMPLATES_PAUSE_MS = 5000
local function cpu_configs_key(cluster_id) return key('cpu_configs:' .. cluster_id) end
local function cpu_config_counts_key(cluster_id) return key('cpu_config_counts:' .. cluster_id) end
local function cpu_config_result_key(cluster_id) return key('cpu_config_result:' .. cluster_id) end
local function touch_cpu_configs(cluster_id)
  if redis.call('EXISTS', cpu_configs_key(cluster_id)) == 0 then
    redis.call('DEL', cpu_config_result_key(cluster_id))
  else
    redis.call('HSET', cpu_config_result_key(cluster_id), 'version', integer(redis.call('INCR', key('sequence'))))
  end
end
local function list_cpu_config(node_id, cluster_id, digest)
  redis.call('ZADD', cpu_configs_key(cluster_id), 0, digest .. ' ' .. node_id)
  redis.call('HINCRBY', cpu_config_counts_key(cluster_id), digest, 1)
end
local function unlist_cpu_config(node_id, cluster_id, digest)
  if redis.call('ZREM', cpu_configs_key(cluster_id), digest .. ' ' .. node_id) == 0 then return end
  if redis.call('HINCRBY', cpu_config_counts_key(cluster_id), digest, -1) <= 0 then
    redis.call('HDEL', cpu_config_counts_key(cluster_id), digest)
  end
end
local function withdraw_cpu_config(node_id)
  local kept = node_key(node_id, 'cpu_config')
  local about = redis.call('HMGET', kept, 'listed', 'cluster_id', 'digest')
  if about[1] ~= '1' then return end
  unlist_cpu_config(node_id, about[2], about[3])
  touch_cpu_configs(about[2])
  redis.call('HSET', kept, 'listed', '0')
  redis.call('PEXPIRE', kept, KEPT_MS)
end
local function cpu_config_holders(cluster_id)
  local holders = {}
  for _, digest in ipairs(redis.call('HKEYS', cpu_config_counts_key(cluster_id))) do
    local first = redis.call('ZRANGEBYLEX', cpu_configs_key(cluster_id),
      '[' .. digest .. ' ', '(' .. digest .. '!', 'LIMIT', 0, 1)[1]
    holders[#holders + 1] = string.sub(first, #digest + 2)
  end
  table.sort(holders)
  return holders
end
local function cpu_config_unsent(kept, result, now)
  if not result.revision or result.failed == '1' or kept.answered_revision == result.revision then return false end
  local count = kept.sent_revision == result.revision and tonumber(kept.sent_count) or 0
  return count < 2 or now - tonumber(result.recomputed_at_ms) <= RESENT_MS
end
local function cpu_config_due(node_id, now)
  local cluster_id = redis.call('HGET', node_key(node_id), 'cluster_id') or ''
  local kept = as_table_of(node_key(node_id, 'cpu_config'),
    'listed', 'cluster_id', 'answered_revision', 'sent_revision', 'sent_count')
  if kept.listed ~= '1' or kept.cluster_id ~= cluster_id then return true end
  if redis.call('HEXISTS', cpu_config_counts_key(cluster_id), 'none') == 1 then return false end
  local result = as_table_of(cpu_config_result_key(cluster_id),
    'version', 'computed_version', 'revision', 'recomputed_at_ms', 'failed')
  return result.version ~= result.computed_version or cpu_config_unsent(kept, result, now)
end
local function deliver_cpu_config(node_id, cluster_id, carried, now)
  local result = as_table_of(cpu_config_result_key(cluster_id), 'revision', 'recomputed_at_ms', 'failed')
  if not result.revision or result.failed == '1' then return { 'nothing' } end
  local name = node_key(node_id, 'cpu_config')
  local kept = as_table_of(name, 'answered_revision', 'sent_revision', 'sent_count')
  if not carried and not cpu_config_unsent(kept, result, now) then return { 'nothing' } end
  local count = kept.sent_revision == result.revision and tonumber(kept.sent_count) or 0
  redis.call('HSET', name, 'sent_revision', result.revision, 'sent_count', integer(count + 1))
  if carried then redis.call('HSET', name, 'answered_revision', result.revision) end
  return { 'send', redis.call('HGET', cpu_config_result_key(cluster_id), 'text') }
end
local MEMBER_OF = {
  r = { candidates = true, ready = true }, c = { candidates = true }, u = { unhealthy = true, last_resort = true },
  x = { unhealthy = true }, o = { over_limit = true }, l = { lingering = true }, w = { waiting = true },
}
local POOL_SETS = { 'candidates', 'ready', 'unhealthy', 'last_resort', 'over_limit', 'lingering', 'waiting' }
local OBSERVED = { 'cpu_capacity', 'memory_capacity', 'cpu_load', 'memory_load', 'starting', 'running', 'paused' }
local settings = read_settings()
if not settings then return { 'uninitialised' } end
local now, node_id = open_clock(ARGV[1]), ARGV[2]
local subject = 'node ' .. node_id
local known = as_table_of(node_key(node_id), 'discovery', 'status', 'over_limit', 'last_seen_ms', 'waiting')
local listed = redis.call('ZSCORE', key('nodes'), node_id)
local row = row_of(node_id)
local function score_in(set) return redis.call('ZSCORE', key(set), node_id) end
local function recount_listing()
  local discovered = known.discovery == 'active' or known.discovery == 'lingering'
  if discovered and not listed then finding(subject, 'listing', 'is discovered but not among the nodes') end
  if listed and not discovered then finding(subject, 'listing', 'is among the nodes but not discovered') end
  if listed and not row then finding(subject, 'row', 'is listed but has no row') end
  if row and not listed then finding(subject, 'row', 'has a row but is not listed') end
  for _, set in ipairs(POOL_SETS) do
    local belongs = row ~= nil and MEMBER_OF[row.pool] ~= nil and MEMBER_OF[row.pool][set] == true
    if belongs and not score_in(set) then finding(subject, 'sets', 'is missing from ' .. set) end
    if not belongs and score_in(set) then finding(subject, 'sets', 'does not belong in ' .. set) end
  end
end
local function recount_sightings()
  local seen, silent = score_in('seen'), score_in('silent')
  local last = listed and known.last_seen_ms
  if (seen and silent) or ((seen or silent) and not last) or (last and not seen and not silent) then
    finding(subject, 'sightings', 'last seen ' .. shown(last) .. ', but in seen: ' .. shown(seen)
      .. ', in silent: ' .. shown(silent))
  elseif last and tonumber(seen or silent) ~= tonumber(last) then
    finding(subject, 'sightings', 'last seen ' .. last .. ', listed with ' .. shown(seen or silent))
  end
end
local function expected_pool(over_limit, stale)
  local pool = pool_of(known.discovery, known.status, over_limit, stale)
  if known.waiting and (pool == 'r' or pool == 'c' or pool == 'u') then return 'w' end
  return pool
end
local function acceptable_pools(over_limit)
  local pools, last = {}, tonumber(known.last_seen_ms or '')
  local overdue = last ~= nil and now - last > settings.report_ttl_ms
  if not score_in('silent') then pools[expected_pool(over_limit, false)] = true end
  if overdue or score_in('silent') then pools[expected_pool(over_limit, true)] = true end
  return pools
end
local function recount_row()
  local ahead = settings.refresh_after and node_id > settings.refresh_after
  if not row or not listed or ahead then return end
  local expected = { pending_cpu = 0, pending_memory = 0, pending_count = 0 }
  local over_limit = observe(expected, known.discovery, known.status, read_figures(node_id), false,
    read_observation_settings())
  if (known.over_limit or '') ~= (over_limit or '') then
    finding(subject, 'limit', 'exceeds ' .. shown(over_limit) .. ', noted: ' .. shown(known.over_limit))
  end
  for _, name in ipairs(OBSERVED) do
    if row[name] ~= expected[name] then
      finding(subject, 'row', name .. ' is ' .. shown(row[name]) .. ', its report says ' .. shown(expected[name]))
    end
  end
  if not acceptable_pools(over_limit)[row.pool] then
    finding(subject, 'row', 'is in pool ' .. shown(row.pool) .. ', which its report, discovery and age contradict')
  end
end
local function recount_cpu_config()
  local kept = as_table_of(node_key(node_id, 'cpu_config'), 'listed', 'cluster_id', 'digest')
  if not kept.listed then return end
  local member = kept.digest .. ' ' .. node_id
  local takes_part = redis.call('ZSCORE', cpu_configs_key(kept.cluster_id), member) ~= false
  local expected = kept.listed == '1' and listed and known.last_seen_ms ~= nil
  if takes_part ~= expected or (kept.listed == '1') ~= expected then
    finding(subject, 'cpu_config', 'takes part in its cluster\'s CPU template although it should not, or the reverse')
  end
end
local cpu, memory, count = recount_claims(node_id, subject)
recount_listing()
recount_sightings()
recount_row()
recount_cpu_config()
if row and (row.pending_cpu ~= cpu or row.pending_memory ~= memory or row.pending_count ~= count) then
  finding(subject, 'pending', string.format('its row counts %d CPUs, %d bytes, %d sandboxes as pending; '
    .. 'its open reservations hold %d, %d, %d', row.pending_cpu, row.pending_memory, row.pending_count, cpu, memory, count))
end
if not listed then
  local function left(part, until_done)
    if redis.call('EXISTS', node_key(node_id, part)) == 1 and not (until_done and score_in(until_done)) then
      finding(subject, 'orphan', 'is not listed, and nothing will ever clear its ' .. part)
    end
  end
  left('acknowledged', 'removed')
  left('sandboxes', 'forgotten')
  left('artifacts')
end
return findings
