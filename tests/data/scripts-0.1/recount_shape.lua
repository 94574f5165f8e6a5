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
local SLICE = 500
local LAG_MAX = 2000
local SET_OF = { any = 'candidates', ready = 'ready', degraded = 'last_resort' }
local name = ARGV[2]
local settings = read_settings()
local cursor, stage = string.match(redis.call('HGET', key('shapes'), name) or '', '^(%d+),%d+,(%a)')
if not settings or stage ~= 'c' then return { 'unfinished' } end
local base = tonumber(redis.call('HGET', key('cursors'), 'journal_base') or '') or 0
local lag = base + redis.call('LLEN', key('journal')) - tonumber(cursor)
if tonumber(cursor) < base or lag < 0 or lag > LAG_MAX then return { 'unfinished' } end
local function parse_shape()
  local rest, variant = string.match(name, '^(.-):(%a+)$')
  if not rest or not SET_OF[variant] then rest, variant = name, 'any' end
  local cpu, memory_mb = string.match(rest, '^([%d-]+):([%d-]+)$')
  return shape_of(cpu ~= nil, tonumber(cpu or '') or 0, tonumber(memory_mb or '') or 0, variant)
end
local shape, subject = parse_shape(), 'shape ' .. name
local moved = {}
for _, member in ipairs(redis.call('LRANGE', key('journal'), tonumber(cursor) - base, -1)) do
  moved[string.sub(member, 31)] = true
end
local from = ARGV[3] == '' and '-' or '(' .. ARGV[3]
for _, node_id in ipairs(redis.call('ZRANGEBYLEX', key('nodes'), from, '+', 'LIMIT', 0, SLICE)) do
  local row = row_of(node_id)
  if row and not moved[node_id] then
    local score = redis.call('ZSCORE', shape.key, row_member(row, node_id))
    local expected = holds_pool(shape.variant, row.pool) and (score_of(row, shape, settings)) or nil
    if expected ~= (score and tonumber(score) or nil) then
      finding(subject, 'index', 'ranks node ' .. node_id .. ' with ' .. shown(score) .. ' instead of '
        .. (expected and string.format('%.17g', expected) or 'leaving it out'))
    end
  end
end
local size, expected_size = redis.call('ZCARD', shape.key), redis.call('ZCARD', key(SET_OF[shape.variant]))
if lag == 0 and size ~= expected_size then
  finding(subject, 'size', 'ranks ' .. integer(size) .. ' nodes of ' .. integer(expected_size))
end
return findings
