-- inline/offering.lua: nodes that tell what they hold. A node offers artifacts in its own cluster and backend.
-- Reads: request
-- Sets: SCOPES_MOST, add_offering, offers_all
-- @include "include/artifacts"
local SCOPES_MOST = 64

local function offers_all(node_id, scope, counts)
  local about = redis.call('HMGET', node_key(node_id), 'cluster_id', 'p2p_backend')
  if artifact_scope(about[1] or '', about[2] or '') ~= scope then return false end
  for _, wanted in ipairs(request.locality) do
    local recorded = redis.call('HGET', artifact_key(scope .. '|' .. wanted), node_id)
    if not recorded or not counts(node_id, recorded) then return false end
  end
  return true
end

-- Adds nodes that offer every artifact of the request, until as many are listed or have been looked at.
local function add_offering(listed, most)
  local scopes, known, counts = redis.call('HKEYS', key('artifact_scopes')), {}, provider_check()
  for _, node_id in ipairs(listed) do known[node_id] = true end
  local looked = #listed
  for number = 1, math.min(#scopes, SCOPES_MOST) do
    local scope = scopes[number]
    local found = redis.call('HSCAN', artifact_key(scope .. '|' .. request.locality[1]), '0', 'COUNT', integer(most))[2]
    for index = 1, #found, 2 do
      local node_id = found[index]
      if looked >= most then return end
      if not known[node_id] then
        known[node_id], looked = true, looked + 1
        if offers_all(node_id, scope, counts) then listed[#listed + 1] = node_id end
      end
    end
  end
end
