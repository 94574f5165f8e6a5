-- @include "include/keys"
-- @include "include/integer"
-- @include "include/entry_order"
-- Members of a planned row that stand too far behind its front to read all before them (include/row_plans), as on a large
-- idle fleet that takes turns: each is looked up by its rank in Redis, which does not move while nothing is written.
--   plan.depths   members, ranks   who was looked up, by rank, and back
--                 gone             ranks that are taken, rising
--                 come             who comes, in order, each with the rank in Redis that it stands before
--                 last, width      the rank looked up last, and how many were read there
local row_depths = {}
do
  local WIDEST, call = 64, redis.call

  local function depths_of(plan)
    local depths = plan.depths
    if not depths then
      depths = { members = {}, ranks = {}, gone = {}, come = {}, last = -1, width = 1 }
      plan.depths = depths
    end
    return depths
  end

  -- Who walks on finds more of what follows read already.
  local function stored_at(plan, depths, rank)
    local known = depths.members[rank]
    if not known then
      local walks = rank > depths.last and rank - depths.last <= 2 * depths.width
      depths.width = walks and math.min(WIDEST, 2 * depths.width) or 1
      local found = call('ZRANGE', plan.name, integer(rank), integer(rank + depths.width - 1), 'WITHSCORES')
      for at = 1, #found, 2 do
        local member, place = found[at], rank + (at - 1) / 2
        depths.members[place], depths.ranks[member], plan.scores[member] = member, place, tonumber(found[at + 1])
      end
      known = found[1]
    end
    depths.last = rank
    return known
  end

  -- How many entries of a list stand at its beginning of which `holds` is true.
  local function count_first(list, holds)
    local low, high = 1, #list + 1
    while low < high do
      local middle = math.floor((low + high) / 2)
      if holds(list[middle], middle) then low = middle + 1 else high = middle end
    end
    return low - 1
  end

  -- How many of those that are gone stood before a rank.
  function row_depths.gone_before(plan, rank)
    return plan.depths and count_first(plan.depths.gone, function(gone) return gone < rank end) or 0
  end

  -- Who comes behind the front gets a place.
  local function place_behind(plan, depths)
    local scores, come = plan.scores, depths.come
    for _, member in ipairs(plan.behind) do
      local score = scores[member]
      local text = string.format('%.17g', score)
      local low = call('ZCOUNT', plan.name, '-inf', '(' .. text)
      local high = low + call('ZCOUNT', plan.name, text, text)
      while low < high do
        local middle = math.floor((low + high) / 2)
        if comes_before(score, stored_at(plan, depths, middle), score, member) then low = middle + 1 else high = middle end
      end
      local place = 1 + count_first(come, function(other)
        return comes_before(scores[other.member], other.member, score, member)
      end)
      table.insert(come, place, { member = member, before = math.max(low, plan.read) })
    end
    plan.behind = {}
  end

  -- The member that stands so far behind the front; 0 is the first there.
  function row_depths.member_at(plan, distance)
    local depths, read = depths_of(plan), plan.read
    if plan.behind[1] then place_behind(plan, depths) end
    local function stand_before(entry, index)
      return entry.before - read - row_depths.gone_before(plan, entry.before) + index - 1
    end
    local passed = count_first(depths.come, function(entry, index) return stand_before(entry, index) < distance end)
    local coming = depths.come[passed + 1]
    if coming and stand_before(coming, passed + 1) == distance then return coming.member end
    local stored = distance - passed
    local gone = count_first(depths.gone, function(rank, index) return rank - read - (index - 1) <= stored end)
    return stored_at(plan, depths, read + stored + gone)
  end

  -- One that was found here leaves.
  function row_depths.take(plan, member)
    local depths = plan.depths
    local rank = depths.ranks[member]
    if rank then
      table.insert(depths.gone, 1 + row_depths.gone_before(plan, rank), rank)
      return
    end
    for index, entry in ipairs(depths.come) do
      if entry.member == member then return table.remove(depths.come, index) end
    end
  end

  -- The front is about to grow up to a rank: who comes has no place any more. Returns who is gone there, as a set.
  function row_depths.surface(plan, rank)
    local depths, gone = plan.depths, {}
    for _, entry in ipairs(depths.come) do plan.behind[#plan.behind + 1] = entry.member end
    depths.come = {}
    while depths.gone[1] and depths.gone[1] < rank do gone[table.remove(depths.gone, 1)] = true end
    return gone
  end
end
