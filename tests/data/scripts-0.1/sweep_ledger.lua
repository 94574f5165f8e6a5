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
local REMOVED_SLICE = 256
local function release_removed(node_id, now)
  local ids = redis.call('ZRANGE', node_key(node_id, 'reservations'), 0, REMOVED_SLICE - 1)
  for _, id in ipairs(ids) do
    local reservation = read_reservation(id)
    if reservation then
      end_when_due(reservation, now)
    else
      redis.call('ZREM', node_key(node_id, 'reservations'), id)
    end
  end
  if #ids < REMOVED_SLICE then
    redis.call('ZREM', key('removed'), node_id)
    redis.call('DEL', node_key(node_id, 'acknowledged'), node_key(node_id, 'explained'))
  end
  return #ids
end
local function settle_absence(node_id, now)
  local given_up_at = redis.call('ZSCORE', key('removed'), node_id)
  if not given_up_at or tonumber(given_up_at) > now then return 0 end
  return release_removed(node_id, now)
end
local function restore_pending(node_id, row)
  local ids = redis.call('ZRANGE', node_key(node_id, 'reservations'), 0, -1)
  for _, id in ipairs(ids) do
    local reservation = read_reservation(id)
    if reservation then
      local cpu, memory, count = held_by(reservation)
      row.pending_cpu = row.pending_cpu + cpu
      row.pending_memory = row.pending_memory + memory
      row.pending_count = row.pending_count + count
    end
  end
end
local function list_node(node_id, endpoint, discovery, now, about)
  local node = node_key(node_id)
  local known = as_table_of(node_key(node_id), 'discovery', 'status', 'over_limit', 'last_seen_ms', 'waiting', 'last_heard_ms')
  local returning = known.discovery ~= 'active' and known.discovery ~= 'lingering'
  if returning then
    redis.call('DEL', node)
    redis.call('ZADD', key('nodes'), 0, node_id)
    redis.call('ZREM', key('removed'), node_id)
    local heard_ms = known.last_seen_ms or known.last_heard_ms
    if heard_ms then redis.call('HSET', node, 'last_heard_ms', heard_ms) end
    known = { waiting = about and about.waiting }
  end
  redis.call('HSET', node, 'endpoint', endpoint, 'discovery', discovery)
  if returning then
    for field, value in pairs(about or {}) do redis.call('HSET', node, field, value) end
  end
  local row = new_row(node_id)
  if returning then restore_pending(node_id, row) end
  local report_ttl_ms = tonumber(redis.call('HGET', KEYS[1], 'report_ttl_ms'))
  local stale = known.last_seen_ms ~= nil and now - tonumber(known.last_seen_ms) > report_ttl_ms
  local over_limit = known.over_limit ~= nil and known.over_limit ~= ''
  row.pool = pool_of(discovery, known.status, over_limit, stale)
  if known.waiting then row.pool = waiting_pool(row.pool) end
end
local function delist_node(node_id, now, settings)
  local node = node_key(node_id)
  local known = as_table_of(node_key(node_id), 'endpoint', 'last_seen_ms', 'last_heard_ms')
  local heard_ms = known.last_seen_ms or known.last_heard_ms
  redis.call('DEL', node)
  redis.call('HSET', node, 'endpoint', known.endpoint or '', 'discovery', 'removed', 'removed_at_ms', integer(now))
  if heard_ms then redis.call('HSET', node, 'last_seen_ms', heard_ms) end
  redis.call('PEXPIRE', node, integer(math.max(settings.report_ttl_ms, settings.binding_ttl_ms) + 3600000))
  for _, set in ipairs({ 'nodes', 'seen', 'silent' }) do redis.call('ZREM', key(set), node_id) end
  redis.call('ZADD', key('removed'), integer(now + settings.report_ttl_ms), node_id)
  redis.call('ZADD', key('forgotten'), integer(now + settings.binding_ttl_ms), node_id)
  drop_row(node_id)
  forget_artifacts(node_id)
  withdraw_cpu_config(node_id)
end
local WALK_MAX = 2048
local OPEN_FIELDS = {
  'state', 'lifecycle', 'cpu_count', 'memory_bytes', 'held_cpu', 'held_memory', 'held_count',
}
local function open_reservations(node_id, before)
  local ids = redis.call('ZRANGEBYSCORE', node_key(node_id, 'reservations'), '-inf', '(' .. integer(before),
    'LIMIT', 0, WALK_MAX)
  local open = {}
  for _, id in ipairs(ids) do
    local found = redis.call('HMGET', reservation_key(id), unpack(OPEN_FIELDS))
    if found[1] then
      local cpu, memory = tonumber(found[3]), tonumber(found[4])
      open[#open + 1] = {
        reservation_id = id, node_id = node_id, state = found[1], lifecycle = found[2], cpu = cpu, memory = memory,
        held_cpu = tonumber(found[5] or cpu), held_memory = tonumber(found[6] or memory),
        held_count = tonumber(found[7] or 1),
      }
    end
  end
  return open
end
local function reduce_credit(credit, cpu, memory)
  credit.count = credit.count - 1
  credit.cpu = cpu > 0 and credit.cpu - cpu or 0
  credit.memory = memory > 0 and credit.memory - memory or 0
end
local function acknowledge(reservation, credit)
  local cpu, memory, count = reservation.held_cpu, reservation.held_memory, reservation.held_count
  if count > 0 then
    if credit.count <= 0 then return false end
    credit.count, count = credit.count - 1, 0
  end
  if cpu > 0 and cpu <= credit.cpu then credit.cpu, cpu = credit.cpu - cpu, 0 end
  if memory > 0 and memory <= credit.memory then credit.memory, memory = credit.memory - memory, 0 end
  if cpu ~= reservation.held_cpu or memory ~= reservation.held_memory or count ~= reservation.held_count then
    release(reservation)
    hold(reservation, cpu, memory, count)
    redis.call('HSET', reservation_key(reservation.reservation_id), 'held_cpu', integer(cpu),
      'held_memory', integer(memory), 'held_count', integer(count))
  end
  return cpu == 0 and memory == 0 and count == 0
end
local function apply_credit(node_id, credit, generation, by_roster, now)
  if credit.count <= 0 and credit.cpu <= 0 and credit.memory <= 0 then return end
  local open, creditable = open_reservations(node_id, generation), {}
  for _, reservation in ipairs(open) do
    if reservation.lifecycle == 'heartbeat' or (reservation.state == 'confirmed' and not by_roster) then
      creditable[#creditable + 1] = reservation
    else
      reduce_credit(credit, reservation.cpu, reservation.memory)
    end
  end
  for _, reservation in ipairs(creditable) do
    if acknowledge(reservation, credit) then
      finish_reservation(read_reservation(reservation.reservation_id), 'settled', 'counters', now)
    end
  end
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
local function reservation_named(sandbox_id, now)
  local id = redis.call('GET', key('sandbox:' .. sandbox_id))
  local reservation = id and read_reservation(id)
  if not reservation then return nil end
  end_when_due(reservation, now)
  if reservation.state == 'expired' or reservation.state == 'cancelled' then return nil end
  return reservation
end
local function name_reservation(reservation, sandbox_id, told)
  local id, node_id = reservation.reservation_id, reservation.node_id
  reservation.sandbox_id, reservation.sandbox_told = sandbox_id, told and '1' or '0'
  redis.call('HSET', reservation_key(id), 'sandbox_id', sandbox_id, 'sandbox_told', reservation.sandbox_told)
  redis.call('ZREM', node_key(node_id, 'acknowledged'), id)
  if reservation.state == 'settled' then
    redis.call('SET', key('sandbox:' .. sandbox_id), id, 'PX', integer(readable_for(reservation)))
  else
    redis.call('SET', key('sandbox:' .. sandbox_id), id)
    redis.call('HSET', node_key(node_id, 'claims'), sandbox_id, id)
  end
end
local function drop_name(reservation)
  local sandbox_id = reservation.sandbox_id
  if redis.call('GET', key('sandbox:' .. sandbox_id)) == reservation.reservation_id then
    redis.call('DEL', key('sandbox:' .. sandbox_id))
    redis.call('HDEL', node_key(reservation.node_id, 'claims'), sandbox_id)
  end
  redis.call('HDEL', reservation_key(reservation.reservation_id), 'sandbox_id', 'sandbox_told')
  reservation.sandbox_id, reservation.sandbox_told = nil, nil
end
local function reopen(reservation, state, expires_at_ms)
  local id, node_id = reservation.reservation_id, reservation.node_id
  release(reservation)
  hold(reservation, tonumber(reservation.cpu_count), tonumber(reservation.memory_bytes), 1)
  reservation.state, reservation.expires_at_ms = state, integer(expires_at_ms)
  redis.call('HSET', reservation_key(id), 'state', state, 'expires_at_ms', integer(expires_at_ms))
  redis.call('HDEL', reservation_key(id), 'reason', 'finished_at_ms', 'held_cpu', 'held_memory', 'held_count',
    'report_generation')
  redis.call('PERSIST', reservation_key(id))
  redis.call('ZREM', key('finished'), id)
  redis.call('ZADD', key('reservations'), reservation.sequence, id)
  redis.call('ZADD', key('expiry'), integer(expires_at_ms), id)
  redis.call('ZADD', node_key(node_id, 'reservations'), reservation.sequence, id)
end
local function lose_name(reservation, now)
  drop_name(reservation)
  if reservation.state == 'settled' then reopen(reservation, 'pending', tonumber(reservation.expires_at_ms)) end
  end_when_due(reservation, now)
end
local function judge_claim(node_id, sandbox_id, listed, settings, now, credit)
  local id = redis.call('HGET', node_key(node_id, 'claims'), sandbox_id)
  local reservation = id and read_reservation(id)
  if not reservation then
    redis.call('HDEL', node_key(node_id, 'claims'), sandbox_id)
    return
  end
  if listed then
    if credit then
      reduce_credit(credit, tonumber(reservation.cpu_count), tonumber(reservation.memory_bytes))
    end
    finish_reservation(reservation, 'settled', 'listed', now)
  elseif reservation.state == 'confirmed' and now - tonumber(reservation.confirmed_at_ms) >= settings.binding_grace_ms then
    if credit and reservation.lifecycle == 'explicit' then
      reduce_credit(credit, tonumber(reservation.cpu_count), tonumber(reservation.memory_bytes))
    end
    finish_reservation(reservation, 'settled', 'gone', now)
    unbind(node_id, { sandbox_id })
  end
end
local SLICE = 256
local BINDING_SLICE = 500
local ABSENT_SLICE = 16
local SELF_REGISTERED_MS = 24 * 3600 * 1000
local settings = read_settings()
if not settings then return { 'uninitialised' } end
read_binding_settings(settings)
local now = open_clock(ARGV[1])
local function due(set)
  return redis.call('ZRANGEBYSCORE', key(set), '-inf', integer(now), 'LIMIT', 0, 1)[1]
end
local function forget_bindings(node_id)
  local listed = redis.call('SPOP', node_key(node_id, 'sandboxes'), BINDING_SLICE)
  unbind(node_id, listed)
  if redis.call('EXISTS', node_key(node_id)) == 1 then
    redis.call('HDEL', node_key(node_id), 'roster_digest')
    redis.call('HINCRBY', node_key(node_id), 'roster_edits', 1)
  end
  if #listed < BINDING_SLICE then redis.call('ZREM', key('forgotten'), node_id) end
  return #listed + 1
end
local function absent_nodes()
  local long_ago = integer(now - SELF_REGISTERED_MS)
  local pages = math.ceil(redis.call('ZCOUNT', key('silent'), '-inf', long_ago) / ABSENT_SLICE)
  if pages == 0 then return {} end
  local first = ABSENT_SLICE * (math.floor(now / 1000) % pages)
  return redis.call('ZRANGEBYSCORE', key('silent'), '-inf', long_ago, 'LIMIT', first, ABSENT_SLICE)
end
local silenced, expired = retire_silent(now, settings.report_ttl_ms, settings.binding_ttl_ms), expire_due(now, SLICE)
local done = silenced + expired
local removed = due('removed')
if removed then done = done + release_removed(removed, now) + 1 end
save_rows()
local forgotten = due('forgotten')
if forgotten then done = done + forget_bindings(forgotten) end
local outlived = redis.call('ZRANGEBYSCORE', key('assigned'), '-inf', integer(now - settings.binding_ttl_ms),
  'LIMIT', 0, BINDING_SLICE)
if outlived[1] then
  redis.call('ZREM', key('assigned'), unpack(outlived))
  for holder, held in pairs(by_holder(outlived, '')) do
    if holder ~= '' then unbind(holder, held) end
  end
end
local purged = purge_finished(now, SLICE)
for _, node_id in ipairs(absent_nodes()) do
  if redis.call('HGET', node_key(node_id), 'self_registered') == '1' then
    delist_node(node_id, now, settings)
    done = done + 1
  end
end
save_rows()
close_clock(now)
done = done + #outlived + purged
return { 'swept', integer(done) }
