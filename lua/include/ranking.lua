-- @include "include/scores"
-- What ranks the candidates where they are compared one by one: a number, the least first, and a text that breaks ties.

local function rank_of(row, demand, settings)
  local score, reason = score_of(row, demand, settings)
  local counts, share = string.sub(row_member(row, ''), 1, 30), settings.fill_to
  if share == 0 or reason then return score, counts end
  local fuller = string.format('%010d', 2 ^ 32 - row.running)
  if score <= share then return -score, fuller end
  local pressure = pressure_on(row, demand)
  -- Behind unknown ones, before those that are avoided and beyond the share.
  if row.avoided and score < AVOIDED_UNKNOWN and pressure <= share then return AVOIDED * 2 ^ -27 * (2 - pressure), fuller end
  return score, counts
end

-- The first by rank of a sorted list, ties by the counter.
local function rank_list(node_ids, context, counter)
  local best, counts, tied
  for _, node_id in ipairs(node_ids) do
    local score, own = rank_of(row_of(node_id), context.demand, context.settings)
    if not best or score < best or (score == best and own < counts) then
      best, counts, tied = score, own, { node_id }
    elseif score == best and own == counts then
      tied[#tied + 1] = node_id
    end
  end
  return tied[1 + counter % #tied]
end
