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
local SLICE = 500
if not read_settings() then return { 'uninitialised' } end
local now = open_clock(ARGV[1])
local first = tonumber(ARGV[2])
local open = redis.call('ZRANGE', key('expiry'), first, first + SLICE - 1)
local counts, oldest, order = {}, {}, {}
for _, id in ipairs(open) do
  local found = redis.call('HMGET', reservation_key(id), 'node_id', 'state', 'created_at_ms', 'expires_at_ms')
  if found[1] and tonumber(found[4]) > now then
    local kind = found[2] .. ' ' .. found[1]
    if not counts[kind] then order[#order + 1] = { kind = kind, node_id = found[1], state = found[2] } end
    counts[kind] = (counts[kind] or 0) + 1
    oldest[kind] = math.max(oldest[kind] or 0, now - tonumber(found[3]))
  end
end
local reply = { 'tally', #open == SLICE and integer(first + SLICE) or '' }
for _, group in ipairs(order) do
  for _, fact in ipairs({ group.node_id, group.state, integer(counts[group.kind]), integer(oldest[group.kind]) }) do
    reply[#reply + 1] = fact
  end
end
return reply
