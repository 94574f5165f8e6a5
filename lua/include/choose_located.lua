-- @include "include/shapes"
-- Choosing among a short list of nodes that locality singled out, by the strategy's own rule.

-- The next id in a sorted list after the cursor.
local function rotate_list(node_ids, cursor)
  for _, node_id in ipairs(node_ids) do
    if not cursor or node_id > cursor then return node_id end
  end
  return node_ids[1]
end

-- The least loaded of a sorted list, ties by the counter.
local function rank_list(node_ids, shape, settings, counter)
  local best, tied
  for _, node_id in ipairs(node_ids) do
    local row = row_of(node_id)
    local rank = { score = score_of(row, shape, settings), counts = string.sub(row_member(row, ''), 1, 30) }
    if not best or rank.score < best.score or (rank.score == best.score and rank.counts < best.counts) then
      best, tied = rank, { node_id }
    elseif rank.score == best.score and rank.counts == best.counts then
      tied[#tied + 1] = node_id
    end
  end
  return tied and tied[1 + counter % #tied]
end
