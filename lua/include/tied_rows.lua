-- Stands inside include/ties: nodes of several rows tie.
local SORTED_MOST = 64

-- Several rows tie. A few nodes take turns by id; of many, row after row. Returns the row, whose turn it is there, and the
-- member where it is known.
local function turn_among(tied, total, turn)
  if total <= SORTED_MOST then
    local members = {}
    for _, item in ipairs(tied) do
      for place = 0, item.tied - 1 do
        members[#members + 1] = { item = item, place = place, member = member_in_turn(item, place) }
      end
    end
    table.sort(members, function(one, other) return string.sub(one.member, 31) < string.sub(other.member, 31) end)
    local chosen = members[turn + 1]
    return chosen.item, chosen.place, chosen.member
  end
  for _, item in ipairs(tied) do
    if turn < item.tied then return item, turn end
    turn = turn - item.tied
  end
end
