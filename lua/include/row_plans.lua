-- @include "include/row_reads"
-- @include "include/row_reads_more"
-- @include "include/heads"
-- @include "include/row_depths"
-- Rows of the index as they will be once what is planned is written.
--   of each row   members, count   its front, in order: who was read and stays, and who comes among them
--                 scores           of these and of `behind`
--                 read             so many were read of Redis, which is the rank that is read next
--                 whole            nobody is left there
--                 stored           how many Redis has, once that was asked
--                 behind           who comes behind the front, in no order
--                 alike            how many at the head have the same counts and score
--                 tied             who ties among the first (include/planned_ties)
-- `following`: how many creations will be asked for yet, which says how much is worth reading at once.
local row_plans = { following = 0 }
do
  -- So many of a row are read at first and at most so many ahead; a front is not made longer than this to reach a place.
  local FIRST, WIDEST, FRONT_MOST, call, plans = 8, 64, 1024, redis.call, {}

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
      -- Who came here already has a stale entry, as a stopped script leaves it: coming writes over it.
      local is_stale = scores[member] and not (plan.depths and plan.depths.ranks[member])
      if not is_stale and not (gone and gone[rank + (at - 1) / 2]) then
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
      -- Reading all up to there is worth as many single looks as creations follow.
      if rank >= FRONT_MOST or rank + 1 - count > FIRST + 16 * row_plans.following then
        return row_depths.member_at(plan, rank - count)
      end
      row_plans.fill(plan, rank + 1)
    end
    return plan.members[rank + 1]
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
end
