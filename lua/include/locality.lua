-- @include "include/keys"
-- @include "include/artifacts"
-- Which candidates hold most of the artifacts a request needs.
local SCOPES_MOST = 64
local PROVIDERS_MOST = 1024
local VISITS_MOST = 8192

-- Node ids that score highest, at least one point each; nil when nobody scores. A candidate scores one
-- point per distinct key that the index has for it under its own cluster and backend. `eligible(node_id)`
-- returns those two, or nil for no candidate. Advisory, so it is bounded rather than complete: of an
-- artifact that more than 1,024 nodes hold, a part is looked at.
local function best_located(keys, eligible)
  local scopes = redis.call('HKEYS', key('artifact_scopes'))
  local counts, scope_by_node, score_by_node = provider_check(), {}, {}
  local highest, visits = 0, 0
  for scope_index = 1, math.min(#scopes, SCOPES_MOST) do
    local scope = scopes[scope_index]
    for _, wanted in ipairs(keys) do
      if visits > VISITS_MOST then break end
      local found = redis.call('HSCAN', artifact_key(scope .. '|' .. wanted), '0', 'COUNT', PROVIDERS_MOST)[2]
      for index = 1, #found, 2 do
        local node_id = found[index]
        if scope_by_node[node_id] == nil then
          local cluster_id, backend = eligible(node_id)
          scope_by_node[node_id] = cluster_id and backend and artifact_scope(cluster_id, backend) or false
        end
        if scope_by_node[node_id] == scope and counts(node_id, found[index + 1]) then
          score_by_node[node_id] = (score_by_node[node_id] or 0) + 1
          highest = math.max(highest, score_by_node[node_id])
        end
      end
      visits = visits + #found / 2
    end
  end
  if highest == 0 then return nil end
  local best = {}
  for node_id, score in pairs(score_by_node) do
    if score == highest then best[#best + 1] = node_id end
  end
  return best
end
