-- inline/choose_among.lua: leaves a few nodes of the candidates, which the strategy then decides among.
-- Reads: context, request
-- Sets: choose_among
-- @include "include/acceptance"
-- @include "include/ranking"

-- `node_ids`: sorted, each acceptable, at least one.
local function choose_among(node_ids)
  context.located = {}
  for _, node_id in ipairs(node_ids) do context.located[node_id] = true end
  context.rank_located = function(counter) return rank_list(node_ids, context, counter) end
  context.random_located = function() return node_ids[1 + request.entropy % #node_ids] end
  context.next_located = function(cursor)
    for _, node_id in ipairs(node_ids) do
      if not cursor or node_id > cursor then return node_id end
    end
    return node_ids[1]
  end
end
