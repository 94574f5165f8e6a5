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
local SLICE = 500
local settings = read_settings()
if not settings then return { 'uninitialised' } end
if not settings.refresh_after then return { 'refreshed', '0' } end
local now = open_clock(ARGV[1])
local observation = read_observation_settings()
local unheard_since_ms = tonumber(redis.call('HGET', KEYS[1], 'unheard_since_ms') or '') or -1
local from = settings.refresh_after == '' and '-' or '(' .. settings.refresh_after
local node_ids = redis.call('ZRANGEBYLEX', key('nodes'), from, '+', 'LIMIT', 0, SLICE)
for _, node_id in ipairs(node_ids) do
  local figures, row = read_figures(node_id), row_of(node_id)
  local known = as_table_of(node_key(node_id), 'discovery', 'status', 'waiting')
  if figures and row then
    local stale = now - figures.last_seen_ms > settings.report_ttl_ms
    local over_limit = observe(row, known.discovery, known.status, figures, stale, observation)
    redis.call('HSET', node_key(node_id), 'over_limit', over_limit or '')
    if not stale and redis.call('ZREM', key('silent'), node_id) == 1 then
      redis.call('ZADD', key('seen'), integer(figures.last_seen_ms), node_id)
      redis.call('ZREM', key('forgotten'), node_id)
    end
    if known.waiting or figures.last_seen_ms <= unheard_since_ms then
      redis.call('HSET', node_key(node_id), 'waiting', 1)
      row.pool = waiting_pool(row.pool)
    end
  end
end
save_rows()
if #node_ids == SLICE then
  redis.call('HSET', KEYS[1], 'refresh_after', node_ids[SLICE])
  return { 'refreshed', '1' }
end
redis.call('HDEL', KEYS[1], 'refresh_after')
return { 'refreshed', '0' }
