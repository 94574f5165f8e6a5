-- @include "include/row_reads"
-- @include "include/row_reads_more"
-- @include "include/heads"
-- @include "include/row_depths"
-- Rows of the index as they will be once what is planned is written.
--   of each row   members, count   its front, in order: who was read and stays, and who comes among them
--                 scores           of these and of `behind`
--                 read             so many were read of Redis, which is the rank that is read next
--                 whole            nobody is left there
--                 behind           who comes behind the front, in no order
--                 alike            how many at the head have the same counts and score
--                 tied             who ties among the first (include/planned_reads)
-- `following`: how many creations will be asked for yet, which says how much is worth reading at once.
local row_plans = { following = 0 }
do
  local FIRST, WIDEST, FRONT_MOST, LOOKED_AT, call, plans = 8, 64, 1024, 32, redis.call, {}

  -- The keys of rows, each made once.
  local keys_of, made = {}, cpu_rows.key_of
  function cpu_rows.key_of(class, row)
    local keys = keys_of[class]
    if not keys then
      keys = {}
      keys_of[class] = keys
    end
    local known = keys[row]
    if not known then
      known = made(class, row)
      keys[row] = known
    end
    return known
  end

  local function plan_of(name)
    local plan = plans[name]
    if not plan then
      plan = { name = name, members = {}, count = 0, scores = {}, read = 0, whole = false, behind = {} }
      plans[name] = plan
    end
    return plan
  end
  row_plans.of = plan_of

  -- Reads on at the end of the front, at least so many, and puts who comes among them in its place.
  local function read_on(plan, lacking)
    local width = math.max(lacking, math.min(2 + 2 * row_plans.following, FIRST + plan.count, WIDEST))
    local members, scores, count, rank = plan.members, plan.scores, plan.count, plan.read
    local found = call('ZRANGE', plan.name, integer(rank), integer(rank + width - 1), 'WITHSCORES')
    local gone = plan.depths and row_depths.surface(plan, rank + width)
    plan.read, plan.whole = rank + #found / 2, #found < 2 * width
    local behind, next_behind = plan.behind, 1
    if behind[2] then
      table.sort(behind, function(one, other) return comes_before(scores[one], one, scores[other], other) end)
    end
    for at = 1, #found, 2 do
      local member, score = found[at], tonumber(found[at + 1])
      while behind[next_behind] and comes_before(scores[behind[next_behind]], behind[next_behind], score, member) do
        count, next_behind = count + 1, next_behind + 1
        members[count] = behind[next_behind - 1]
      end
      if not (gone and gone[rank + (at - 1) / 2]) then
        count = count + 1
        members[count], scores[member] = member, score
      end
    end
    plan.behind = {}
    for index = next_behind, #behind do
      if plan.whole then
        count = count + 1
        members[count] = behind[index]
      else
        plan.behind[index - next_behind + 1] = behind[index]
      end
    end
    plan.count = count
  end

  -- Reads until the front has so many members, or all.
  function row_plans.fill(plan, count)
    while plan.count < count and not plan.whole do read_on(plan, count - plan.count) end
  end

  -- The member at a rank.
  function row_plans.member_at(plan, rank)
    local count = plan.count
    if rank >= count and not plan.whole then
      -- A few creations more are not worth reading all up to there.
      if rank >= FRONT_MOST or rank + 1 - count > FIRST + 16 * row_plans.following then
        return row_depths.member_at(plan, rank - count)
      end
      row_plans.fill(plan, rank + 1)
    end
    return plan.members[rank + 1]
  end

  -- How many of the front stand before an entry.
  local function stand_before(plan, score, member)
    local members, scores, low, high = plan.members, plan.scores, 1, plan.count + 1
    while low < high do
      local middle = math.floor((low + high) / 2)
      local other = members[middle]
      if comes_before(scores[other], other, score, member) then low = middle + 1 else high = middle end
    end
    return low - 1
  end

  -- Whose turn comes next after `found` if all that follow ask alike, as far as is known without reading; at most so many.
  function row_plans.upcoming(found, counter, most)
    local item, members, turns, list = found.item, plan_of(found.key).members, { found.turn }, {}
    local first, tied = item.first or 0, item.list or members
    if item.tied == 1 then return { unpack(members, first + 2, first + 1 + most) } end
    if item.list then first = 0 end
    for ahead = 1, math.min(most, item.tied - 1) do
      -- Their places while those before them have not left yet.
      local turn, at = (counter + ahead) % (item.tied - ahead), 1
      while turns[at] and turns[at] <= turn do turn, at = turn + 1, at + 1 end
      table.insert(turns, at, turn)
      list[ahead] = tied[first + turn + 1]
      if not list[ahead] then break end
    end
    return list
  end

  -- Whether it is one of those that are alike at the head of its row; nil: it stands before them.
  local function is_alike(alike, member, score)
    local counts = string.sub(member, 1, 30)
    if score < alike.score or (score == alike.score and counts < alike.counts) then return nil end
    return score == alike.score and counts == alike.counts
  end

  -- Somebody whom a reader told of leaves a row; `rank`: where, if that is known. Returns the score that its head has
  -- then, when another was the head.
  function row_plans.take(name, member, rank)
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
    if plan.tied then row_plans.leave_tied(plan, at, member) end
    if at > 1 then return nil end
    row_plans.fill(plan, 1)
    return scores[members[1]] or cpu_rows.EMPTY
  end

  -- Somebody comes to a row.
  function row_plans.bring(name, member, score)
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
      if plan.tied then row_plans.join_tied(plan, at, member) end
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
