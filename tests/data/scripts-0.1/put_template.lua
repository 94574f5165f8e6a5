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
local TEMPLATES_MAX = 100000
local LEARNED_MIB = 1024 * 1024
local function write_template(template_id, cpu_count, memory_mb, source)
  redis.call('HSET', key('template:' .. template_id), 'cpu_count', cpu_count, 'memory_mb', memory_mb, 'source', source)
  redis.call('ZADD', key('templates'), 0, template_id)
end
local function learn_template(reservation, cpu, memory)
  local template_id = reservation.template_id
  if not template_id or cpu <= 0 or memory <= 0 then return end
  if redis.call('HGET', KEYS[1], 'templates_learn') ~= '1' then return end
  local source = redis.call('HGET', key('template:' .. template_id), 'source')
  if source == 'declared' or (not source and redis.call('ZCARD', key('templates')) >= TEMPLATES_MAX) then return end
  write_template(template_id, integer(cpu), integer(math.ceil(memory / LEARNED_MIB)), 'learned')
end
if not read_settings() then return { 'uninitialised' } end
open_clock(ARGV[1])
if not redis.call('ZSCORE', key('templates'), ARGV[2]) and redis.call('ZCARD', key('templates')) >= TEMPLATES_MAX then
  return { 'full', integer(TEMPLATES_MAX) }
end
write_template(ARGV[2], ARGV[3], ARGV[4], 'declared')
return { 'declared' }
