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
local EVICTIONS = 16
local capacity = tonumber(redis.call('HGET', KEYS[1], 'artifact_store_capacity') or '')
if not capacity then return { 'uninitialised' } end
local node_id = ARGV[5]
if not redis.call('ZSCORE', key('nodes'), node_id) then return { 'unlisted' } end
local scope = artifact_scope(ARGV[2], ARGV[3])
local artifact = scope .. '|' .. ARGV[4]
work_off_artifacts()
redis.call('HSET', artifact_key(artifact), node_id, redis.call('HGET', key('artifact_epochs'), node_id) or '0')
redis.call('SADD', node_key(node_id, 'artifacts'), artifact)
if redis.call('ZADD', key('artifacts'), redis.call('INCR', key('sequence')), artifact) == 1 then
  redis.call('HINCRBY', key('artifact_scopes'), scope, 1)
end
local beyond = math.min(redis.call('ZCARD', key('artifacts')) - capacity, EVICTIONS)
if beyond > 0 then
  for _, oldest in ipairs(redis.call('ZRANGE', key('artifacts'), 0, beyond - 1)) do drop_artifact(oldest) end
end
return { 'recorded' }
