-- @include "include/scores"
-- Whether a candidate may take the request, for whoever looks at candidates one by one.
local function is_acceptable(node_id, request, context)
  if request.excluded[node_id] then return false end
  if context.located and not context.located[node_id] then return false end
  if not request.creation then return true end
  local row = row_of(node_id)
  -- One that should not be among the candidates: whoever has chosen it sees to that.
  if not row then return true end
  if request.spares and is_spared(row, request.spares) then return false end
  if request.matches and not request.matches[row.labels] then return false end
  if obstacle(row, context.demand, context.settings, context.admits) then return false end
  return row.pending_memory + context.demand.memory <= SAFE_INTEGER_MAX
end
