-- inline/choose_located.lua: among the candidates, those that hold most of the artifacts the request needs; the strategy
-- then decides among them.
-- Reads: context, request
-- Sets: locate
-- @include "include/locality"
-- @inline "inline/choose_among"

local function locate()
  local best = best_located(request.locality, function(node_id)
    local row = row_of(node_id)
    if not row or row.avoided or not node_pools.holds(context.variant, row.pool)
      or not is_acceptable(node_id, request, context) then
      return nil
    end
    local about = redis.call('HMGET', node_key(node_id), 'cluster_id', 'p2p_backend')
    return about[1] or '', about[2] or ''
  end)
  if not best or #best == 0 then return end
  table.sort(best)
  choose_among(best)
end
