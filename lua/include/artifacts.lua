-- @include "include/keys"
-- @include "include/reply"
-- Which nodes can serve which P2P artifact.
--
--   artifacts                zset: artifact → sequence of its last record or lookup; its size is what capacity bounds
--   artifact:<artifact>      hash: node → epoch of its entries when it was recorded
--   node:<id>:artifacts      set: the artifacts of one node
--   artifact_scopes          hash: (cluster, backend) → how many artifacts it has
--   artifact_epochs          hash: node → epoch, while older entries of that node wait to be cleared away
--   artifact_leftovers         list: what is parked under artifact_leftovers:<number> and cleared away in slices
--
-- An artifact is named "<bytes>:<cluster>|<bytes>:<backend>|<key>": lengths keep texts that hold the separators apart.
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

local drop_artifact, drop_provider, forget_artifacts
do
  -- A large key is moved out of sight, and `work_off_artifacts` clears it away: announced before it is moved, so that
  -- nothing is moved that nobody clears away.
  local function announce(kind, about)
    local number = integer(redis.call('INCR', key('sequence')))
    redis.call('RPUSH', key('artifact_leftovers'), kind .. '|' .. number .. '|' .. about)
    return number
  end

  local function park(name, number) redis.call('RENAME', name, key('artifact_leftovers:' .. number)) end

  -- The artifact and all its providers go; off the list last, so that what was stopped goes when it is met again.
  function drop_artifact(artifact)
    local name = artifact_key(artifact)
    local providers = redis.call('HLEN', name)
    if providers > AT_ONCE then
      park(name, announce('artifact', artifact))
    elseif providers > 0 then
      for _, node_id in ipairs(redis.call('HKEYS', name)) do
        redis.call('SREM', node_key(node_id, 'artifacts'), artifact)
      end
      redis.call('DEL', name)
    end
    if redis.call('ZREM', key('artifacts'), artifact) == 1 then
      local scope = scope_of(artifact)
      if redis.call('HINCRBY', key('artifact_scopes'), scope, -1) <= 0 then
        redis.call('HDEL', key('artifact_scopes'), scope)
      end
    end
  end

  function drop_provider(artifact, node_id)
    redis.call('HDEL', artifact_key(artifact), node_id)
    if redis.call('EXISTS', artifact_key(artifact)) == 0 then drop_artifact(artifact) end
  end

  -- Everything the node offered goes. Many entries are only outdated here (by the epoch) and cleared away later.
  function forget_artifacts(node_id)
    local name = node_key(node_id, 'artifacts')
    local count = redis.call('SCARD', name)
    if count > AT_ONCE then
      local number = announce('node', node_id)
      redis.call('HSET', key('artifact_epochs'), node_id, number)
      park(name, number)
    elseif count > 0 then
      for _, artifact in ipairs(redis.call('SMEMBERS', name)) do drop_provider(artifact, node_id) end
      redis.call('DEL', name)
    end
  end
end

-- One slice of what `park` put aside.
local function work_off_artifacts()
  local entry = redis.call('LINDEX', key('artifact_leftovers'), 0)
  if not entry then return end
  local kind, number, about = string.match(entry, '^(%a+)|(%d+)|(.*)$')
  local parked = key('artifact_leftovers:' .. number)
  if kind == 'artifact' then
    local slice = redis.call('HSCAN', parked, '0', 'COUNT', AT_ONCE)[2]
    for index = 1, #slice, 2 do
      local node_id = slice[index]
      if redis.call('HEXISTS', artifact_key(about), node_id) == 0 then
        redis.call('SREM', node_key(node_id, 'artifacts'), about)
      end
      redis.call('HDEL', parked, node_id)
    end
  else
    local epoch = redis.call('HGET', key('artifact_epochs'), about)
    local slice = redis.call('SRANDMEMBER', parked, AT_ONCE)
    for _, artifact in ipairs(slice) do
      local recorded = redis.call('HGET', artifact_key(artifact), about)
      if recorded and recorded ~= epoch then drop_provider(artifact, about) end
    end
    if slice[1] then redis.call('SREM', parked, unpack(slice)) end
    if redis.call('EXISTS', parked) == 0 and epoch == number then
      redis.call('HDEL', key('artifact_epochs'), about)
    end
  end
  if redis.call('EXISTS', parked) == 0 then redis.call('LPOP', key('artifact_leftovers')) end
end

-- A function that tells whether a node's entry still counts.
local function provider_check()
  if redis.call('EXISTS', key('artifact_epochs')) == 0 then return function() return true end end
  return function(node_id, recorded)
    local epoch = redis.call('HGET', key('artifact_epochs'), node_id)
    return not epoch or epoch == recorded
  end
end

-- The P2P backend and address of a node that is ready on this clock and in this cluster ('' is any); else nil.
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
