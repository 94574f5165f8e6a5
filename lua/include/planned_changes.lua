-- @include "include/row_plans"
-- @include "include/planned_ties"
-- Who leaves a planned row and who comes to it.
local planned_changes = {}
do
  -- Whoever ties stands among the first so many (include/ties).
  local LOOKED_AT, plan_of = 32, row_plans.of

  -- How many of the front stand before an entry.
  local function stand_before(plan, score, member)
    local members, scores, low, high = plan.members, plan.scores, 1, plan.count + 1
    while low < high do
      local middle = math.floor((low + high) / 2)
      local other = members[middle]
      local known = scores[other]
      if known < score or (known == score and comes_before(known, other, score, member)) then
        low = middle + 1
      else
        high = middle
      end
    end
    return low - 1
  end

  -- Whether it is one of those that are alike at the head of its row; nil: it stands before them.
  local function is_alike(alike, member, score)
    local counts = string.sub(member, 1, 30)
    if score < alike.score or (score == alike.score and counts < alike.counts) then return nil end
    return score == alike.score and counts == alike.counts
  end

  -- Somebody whom a reader told of leaves a row; `rank`: where, if that is known. Returns the score that its head has
  -- then, when another was the head.
  function planned_changes.take(name, member, rank)
    local plan = plan_of(name)
    local members, scores, alike = plan.members, plan.scores, plan.alike
    if alike and is_alike(alike, member, scores[member]) then
      alike.number = alike.number - 1
      if alike.number < 1 then plan.alike = nil end
    end
    local at = rank and rank + 1 or 1
    if not rank then
      while at <= LOOKED_AT and members[at] ~= member do at = at + 1 end
      if at > LOOKED_AT then at = 1 + stand_before(plan, scores[member], member) end
    end
    if members[at] ~= member then
      row_depths.take(plan, member)
      return nil
    end
    table.remove(members, at)
    plan.count = plan.count - 1
    if plan.tied then planned_ties.leave(plan, at, member) end
    if at > 1 then return nil end
    if plan.count < 1 then row_plans.fill(plan, 1) end
    return scores[members[1]] or cpu_rows.EMPTY
  end

  -- Somebody comes to a row.
  function planned_changes.bring(name, member, score)
    local plan = plan_of(name)
    local members, scores, count, at = plan.members, plan.scores, plan.count, nil
    scores[member] = score
    local last = members[count]
    if last and comes_before(score, member, scores[last], last) then
      at = 1 + stand_before(plan, score, member)
    elseif plan.whole then
      at = count + 1
    end
    if at then
      table.insert(members, at, member)
      plan.count = count + 1
      if plan.tied then planned_ties.join(plan, at, member) end
    else
      plan.behind[#plan.behind + 1] = member
    end
    local alike = plan.alike and is_alike(plan.alike, member, score)
    if alike then
      plan.alike.number = plan.alike.number + 1
    elseif alike == nil then
      plan.alike = nil
    end
  end
end
