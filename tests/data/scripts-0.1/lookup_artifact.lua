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
local SLICE = 500
local settings = redis.call('HMGET', KEYS[1], 'report_ttl_ms', 'artifact_lookup_node_limit')
if not settings[1] then return { 'uninitialised' } end
local now = open_clock(ARGV[1])
local report_ttl_ms, limit = tonumber(settings[1]), tonumber(settings[2] or '0')
local cluster_id, backend = ARGV[2], ARGV[3]
local artifact = artifact_scope(cluster_id, backend) .. '|' .. ARGV[4]
if ARGV[6] == '0' then
  work_off_artifacts()
  if not redis.call('ZSCORE', key('artifacts'), artifact) then return { 'providers', '0' } end
  redis.call('ZADD', key('artifacts'), redis.call('INCR', key('sequence')), artifact)
end
local counts = provider_check()
local scanned = redis.call('HSCAN', artifact_key(artifact), ARGV[6], 'COUNT', SLICE)
local reply, found = { 'providers', scanned[1] }, tonumber(ARGV[7])
for index = 1, #scanned[2], 2 do
  local node_id, recorded = scanned[2][index], scanned[2][index + 1]
  if node_id ~= ARGV[5] and counts(node_id, recorded) then
    local peer, address = ready_peer(node_id, cluster_id, backend, now, report_ttl_ms)
    if peer then
      reply[#reply + 1], reply[#reply + 2] = node_id, address
      found = found + 1
    end
  end
  if limit > 0 and found >= limit then
    reply[2] = '0'
    break
  end
end
return reply
