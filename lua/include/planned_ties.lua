-- @include "include/row_plans"
-- @include "include/least_counts"
-- Who has the least counts among the first of a planned row, kept with it and changed with it (`plan.tied`):
--   list, counts   these members by id, and their counts
--   share, width   how many were to be looked at, and how many there were
--   last           the score of the last one that was looked at
--   beyond         the score of the next one, which was too high
local planned_ties = {}
do
  function row_reads.least_counts(name, most, share)
    local plan = row_plans.of(name)
    local tied = plan.tied
    if not tied or tied.share ~= share or tied.last > most or (tied.beyond and tied.beyond <= most) then
      row_plans.fill(plan, share)
      local members, scores, width, beyond = plan.members, plan.scores, math.min(share, plan.count), nil
      while width > 0 and scores[members[width]] > most do
        beyond, width = scores[members[width]], width - 1
      end
      local list, counts = least_counts(members, width)
      if not list[1] then return list end
      tied = { list = list, counts = counts, share = share, width = width, last = scores[members[width]], beyond = beyond }
      plan.tied = tied
    end
    return tied.list, tied.width == share
  end

  local function remove(list, member)
    for index = 1, #list do
      if list[index] == member then
        table.remove(list, index)
        return
      end
    end
  end

  -- One more is looked at. False: it is before all that tie.
  local function joins(tied, member)
    local counts, list = string.sub(member, 1, 30), tied.list
    if counts < tied.counts then return false end
    if counts == tied.counts then
      local index = #list + 1
      while index > 1 and member < list[index - 1] do index = index - 1 end
      table.insert(list, index, member)
    end
    return true
  end

  -- Those that are looked at have changed; they are known no more where nobody is left or somebody was `before` all.
  local function settle(plan, before)
    local tied = plan.tied
    if before or not tied.list[1] then
      plan.tied = nil
    else
      tied.last = plan.scores[plan.members[tied.width]]
    end
  end

  -- One of the front has left the place `at`: where as many were looked at as were to be, the next one is.
  function planned_ties.leave(plan, at, member)
    local tied = plan.tied
    if at > tied.width then return end
    remove(tied.list, member)
    local entering = nil
    if tied.width == tied.share then
      row_plans.fill(plan, tied.width)
      entering = plan.members[tied.width]
    end
    if not entering then tied.width = tied.width - 1 end
    settle(plan, entering and not joins(tied, entering))
  end

  -- One came to the place `at` of the front, and the last one that was looked at may be too many.
  function planned_ties.join(plan, at, member)
    local tied = plan.tied
    local full = tied.width == tied.share
    if at > tied.width + (full and 0 or 1) then return end
    if at > tied.width and tied.beyond then
      tied.beyond = plan.scores[member]
    elseif joins(tied, member) then
      if full then remove(tied.list, plan.members[tied.width + 1]) else tied.width = tied.width + 1 end
      settle(plan)
    else
      plan.tied = nil
    end
  end
end
