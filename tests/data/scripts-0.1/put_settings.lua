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
local now = open_clock(ARGV[1])
local stored = as_table_of(KEYS[1], 'revision', 'digest', 'epoch', 'rebuilding_until_ms', 'unheard_since_ms', 'lost_with')
local function others_alive()
  local alive = redis.call('ZRANGEBYSCORE', key('replicas'), '(' .. integer(now), '+inf', 'LIMIT', 0, 2)
  for _, replica_id in ipairs(alive) do
    if replica_id ~= ARGV[2] then return true end
  end
  return false
end
local function outcome()
  if not stored.epoch then return 'written' end
  local revision, mine = tonumber(stored.revision), tonumber(ARGV[3])
  if mine > revision then return 'written' end
  if mine < revision then return 'adopted' end
  if stored.digest == ARGV[4] then return 'same' end
  return others_alive() and 'conflict' or 'written'
end
local status = outcome()
if status == 'written' then
  local values = { unpack(ARGV, 8) }
  for _, value in ipairs({ 'revision', ARGV[3], 'digest', ARGV[4], 'epoch', stored.epoch or ARGV[5] }) do
    values[#values + 1] = value
  end
  for _, name in ipairs({ 'rebuilding_until_ms', 'unheard_since_ms', 'lost_with' }) do
    if stored[name] then values[#values + 1], values[#values + 2] = name, stored[name] end
  end
  redis.call('DEL', KEYS[1])
  redis.call('HSET', KEYS[1], unpack(values))
  for _, name in ipairs(redis.call('HKEYS', key('shapes'))) do redis.call('UNLINK', key('shape:' .. name)) end
  redis.call('DEL', key('shapes'))
  if redis.call('ZCARD', key('nodes')) > 0 then redis.call('HSET', KEYS[1], 'refresh_after', '') end
end
if ARGV[6] == '1' then
  local binding_ttl_ms = tonumber(redis.call('HGET', KEYS[1], 'binding_ttl_ms'))
  redis.call('HSET', KEYS[1], 'rebuilding_until_ms', integer(now + binding_ttl_ms))
end
if ARGV[7] ~= '' and ARGV[7] ~= stored.lost_with then
  redis.call('HSET', KEYS[1], 'unheard_since_ms', integer(now), 'lost_with', ARGV[7], 'refresh_after', '')
end
close_clock(now)
local rebuilding_until_ms = tonumber(redis.call('HGET', KEYS[1], 'rebuilding_until_ms') or '') or 0
return { status, redis.call('HGETALL', KEYS[1]), integer(math.max(0, rebuilding_until_ms - now)) }
