-- @include "include/row_plans"
-- @include "include/planned_ties"
-- All of include/row_reads answered from rows as they will be (include/row_plans).
do
  local call, plan_of, member_at = redis.call, row_plans.of, row_plans.member_at

  function row_reads.head(name)
    local plan = plan_of(name)
    if plan.count < 2 then row_plans.fill(plan, 2) end
    local first, second = plan.members[1], plan.members[2]
    return { first, plan.scores[first or ''], second, plan.scores[second or ''] }
  end

  function row_reads.range(name, first, last)
    local plan, found, size = plan_of(name), {}, 0
    for rank = tonumber(first), tonumber(last) do
      local member = member_at(plan, rank)
      if not member then break end
      found[size + 1], found[size + 2] = member, plan.scores[member]
      size = size + 2
    end
    return found
  end

  -- Nobody is asked about here.
  row_reads.up_to = nil

  function row_reads.at(name, rank) return member_at(plan_of(name), rank) end

  -- Nobody before it is asked for.
  function row_reads.glance(name, rank)
    local plan = plan_of(name)
    if rank < plan.count or plan.whole then return plan.members[rank + 1] end
    return row_depths.member_at(plan, rank - plan.count)
  end

  -- How many will have at most this score, or less than it.
  local function count(plan, score, below)
    score = tonumber(score)
    local members, scores, low, high = plan.members, plan.scores, 1, plan.count + 1
    local function counts(other) return other < score or (other == score and not below) end
    while low < high do
      local middle = math.floor((low + high) / 2)
      if counts(scores[members[middle]]) then low = middle + 1 else high = middle end
    end
    if plan.whole or low <= plan.count then return low - 1 end
    local stored = call('ZCOUNT', plan.name, '-inf', (below and '(' or '') .. string.format('%.17g', score))
    local total = plan.count + math.max(0, stored - plan.read) - row_depths.gone_before(plan, stored)
    for _, member in ipairs(plan.behind) do
      if counts(scores[member]) then total = total + 1 end
    end
    for _, entry in ipairs(plan.depths and plan.depths.come or {}) do
      if counts(scores[entry.member]) then total = total + 1 end
    end
    return total
  end

  function row_reads.count_to(name, score) return count(plan_of(name), score, false) end

  function row_reads.count_below(name, score) return count(plan_of(name), score, true) end

  function row_reads.down_from(name, score, least, most)
    local last, found = row_reads.count_to(name, score) - 1, {}
    local listed = last >= 0 and row_reads.range(name, math.max(0, last - most + 1), last) or {}
    for at = #listed - 1, 1, -2 do
      if least ~= '-inf' and listed[at + 1] < tonumber(least) then break end
      found[#found + 1], found[#found + 2] = listed[at], listed[at + 1]
    end
    return found
  end

  function row_reads.card(name)
    local plan = plan_of(name)
    local behind = #plan.behind
    if plan.depths then behind = behind + #plan.depths.come - #plan.depths.gone end
    if not plan.whole and not plan.stored then plan.stored = call('ZCARD', name) end
    return plan.count + behind + (plan.whole and 0 or plan.stored - plan.read)
  end

  function row_reads.alike(name)
    local alike = plan_of(name).alike
    return alike and alike.number
  end

  function row_reads.note_alike(name, counts, score, number)
    plan_of(name).alike = { counts = counts, score = tonumber(score), number = number }
  end
end
