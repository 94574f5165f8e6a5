-- Included inside include/decide: among the candidates, those that hold most of the
-- artifacts the request needs; the strategy then decides among them.
-- @include "include/locality"
-- @include "include/acceptance"
-- @include "include/ranking"

local function locate()
  local best = best_located(request.locality, function(node_id)
    local row = row_of(node_id)
    if not row or row.avoided or not node_pools.holds(context.variant, row.pool) or not is_acceptable(node_id, request, context) then
      return nil
    end
    local about = redis.call('HMGET', node_key(node_id), 'cluster_id', 'p2p_backend')
    return about[1] or '', about[2] or ''
  end)
  if not best or #best == 0 then return end
  table.sort(best)
  context.located = {}
  for _, node_id in ipairs(best) do context.located[node_id] = true end
  context.rank_located = function(counter) return rank_list(best, context, counter) end
  context.random_located = function() return best[1 + request.entropy % #best] end
  context.next_located = function(cursor)
    for _, node_id in ipairs(best) do
      if not cursor or node_id > cursor then return node_id end
    end
    return best[1]
  end
end
