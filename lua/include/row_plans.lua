-- @include "include/row_reads"
-- @include "include/row_reads_more"
-- @include "include/heads"
-- @include "include/reply"
-- Rows of the index as they will be once what is planned is written: who comes to a row and who leaves it is kept here, and
-- all of include/row_reads is answered from what Redis has and that. Ranks within Redis do not move meanwhile, since
-- nothing is written.
--   of each row   members, scores, ranks   what was read of it, by rank, and back
--                 gone      ranks that are taken, rising; `skipped`: all before it are
--                 come      who comes, in order, each with the rank in Redis that it stands before
--                 fresh     who comes and was not asked about yet
--                 far       who comes behind the first that were read
--                 alike     how many at the head have the same counts and score
local row_plans = {}
do
  local FIRST, call, huge, plans = 8, redis.call, math.huge, {}

  -- The keys of rows, each made once.
  local keys_of, made = {}, cpu_rows.key_of
  function cpu_rows.key_of(class, row)
    local keys = keys_of[class]
    if not keys then
      keys = {}
      keys_of[class] = keys
    end
    keys[row] = keys[row] or made(class, row)
    return keys[row]
  end

  local function plan_of(name)
    local plan = plans[name]
    if not plan then
      plan = {
        name = name, members = {}, scores = {}, ranks = {}, gone = {}, skipped = 0, come = {}, fresh = {}, far = {},
        left = {}, size = huge,
      }
      plans[name] = plan
    end
    return plan
  end

  -- What Redis has at a rank. Where it was not read yet, so many from there on are.
  local function stored_at(plan, rank, count)
    local member = plan.members[rank]
    if member or rank >= plan.size then return member end
    local found = call('ZRANGE', plan.name, integer(rank), integer(rank + count - 1), 'WITHSCORES')
    for at = 1, #found, 2 do
      local place = rank + (at - 1) / 2
      plan.members[place], plan.scores[place], plan.ranks[found[at]] = found[at], tonumber(found[at + 1]), place
    end
    if #found < 2 * count then plan.size = math.min(plan.size, rank + #found / 2) end
    return found[1]
  end

  -- The order of Redis, which is that of bytes. Lua's is that of the server's language; where capitals come first it is
  -- one of bytes too.
  local BYTES = 'B' < 'a' and 'b' > 'A' and '_' < 'a' and '-' < '.'
  local function comes_before(score, member, other_score, other_member)
    if score ~= other_score then return score < other_score end
    if BYTES then return member < other_member end
    for at = 1, math.min(#member, #other_member) do
      local byte, other = string.byte(member, at), string.byte(other_member, at)
      if byte ~= other then return byte < other end
    end
    return #member < #other_member
  end

  local function insert(plan, entry)
    local list = plan.come
    local low, high = 1, #list + 1
    local last = list[high - 1]
    if last and comes_before(last.score, last.member, entry.score, entry.member) then low = high end
    while low < high do
      local middle = math.floor((low + high) / 2)
      if comes_before(list[middle].score, list[middle].member, entry.score, entry.member) then
        low = middle + 1
      else
        high = middle
      end
    end
    table.insert(list, low, entry)
  end

  -- Who comes gets a place among the first that were read, or waits until somebody looks behind them.
  local function place_fresh(plan)
    local read = 0
    while read < FIRST and stored_at(plan, read, FIRST - read) do read = read + 1 end
    for _, entry in ipairs(plan.fresh) do
      local rank = 0
      while rank < read and comes_before(plan.scores[rank], plan.members[rank], entry.score, entry.member) do
        rank = rank + 1
      end
      if rank < read or read < FIRST then
        entry.before = rank
        insert(plan, entry)
      else
        plan.far[#plan.far + 1] = entry
      end
    end
    plan.fresh = {}
  end

  local function place_far(plan)
    for _, entry in ipairs(plan.far) do
      local score = string.format('%.17g', entry.score)
      local low = call('ZCOUNT', plan.name, '-inf', '(' .. score)
      local high = low + call('ZCOUNT', plan.name, score, score)
      while low < high do
        local middle = math.floor((low + high) / 2)
        if comes_before(entry.score, stored_at(plan, middle, 1), entry.score, entry.member) then
          low = middle + 1
        else
          high = middle
        end
      end
      entry.before = low
      insert(plan, entry)
    end
    plan.far = {}
  end

  -- How many of those that are gone stood before a rank.
  local function gone_before(plan, rank)
    local gone = plan.gone
    local low, high = 1, #gone + 1
    while low < high do
      local middle = math.floor((low + high) / 2)
      if gone[middle] < rank then low = middle + 1 else high = middle end
    end
    return low - 1
  end

  -- Where reading begins that passes so many: which rank comes next, and who of those that are gone and that come.
  local function skip_to(plan, first)
    local gone, come, skipped = plan.gone, plan.come, plan.skipped
    local low, high = 1, #come + 1
    while low < high do
      local middle = math.floor((low + high) / 2)
      local before = math.max(come[middle].before, skipped)
      -- How many will stand before this one.
      if before - skipped - gone_before(plan, before) + middle - 1 < first then low = middle + 1 else high = middle end
    end
    local next_come = low
    local stored = first - (next_come - 1)
    low, high = 1, #gone + 1
    while low < high do
      local middle = math.floor((low + high) / 2)
      if gone[middle] - skipped - (middle - 1) <= stored then low = middle + 1 else high = middle end
    end
    return skipped + stored + low - 1, low, next_come
  end

  -- Those at the ranks from `first` to `last`, as they will be: members and scores; or with `most` the members alone that
  -- have no more than that. Of Redis at least `count` are read at once.
  local function range(plan, first, last, count, most)
    if plan.fresh[1] then place_fresh(plan) end
    local found, size, at, rank = {}, 0, first, plan.skipped
    local gone, come, next_gone, next_come = plan.gone, plan.come, 1, 1
    local members, scores = plan.members, plan.scores
    if first > 0 then rank, next_gone, next_come = skip_to(plan, first) end
    while at <= last do
      local coming, member, score = come[next_come], nil, nil
      if coming and coming.before <= rank then
        member, score, next_come = coming.member, coming.score, next_come + 1
      elseif gone[next_gone] == rank then
        rank, next_gone = rank + 1, next_gone + 1
      else
        member, score = members[rank] or stored_at(plan, rank, count), scores[rank]
        if not member then break end
        rank = rank + 1
      end
      if member then
        if not most then
          found[size + 1], found[size + 2] = member, score
          size = size + 2
        elseif score <= most then
          size = size + 1
          found[size] = member
        else
          break
        end
        at = at + 1
      end
    end
    if rank > FIRST and plan.far[1] then
      place_far(plan)
      return range(plan, first, last, count, most)
    end
    return found
  end

  -- How many will have at most this score, or less than it.
  local function count(plan, score, below)
    score = tonumber(score)
    local function counts(other) return other < score or (other == score and not below) end
    local total = call('ZCOUNT', plan.name, '-inf', (below and '(' or '') .. string.format('%.17g', score))
    for _, member in ipairs(plan.left) do
      if counts(plan.scores[plan.ranks[member]]) then total = total - 1 end
    end
    for _, list in ipairs({ plan.come, plan.fresh, plan.far }) do
      for _, entry in ipairs(list) do
        if counts(entry.score) then total = total + 1 end
      end
    end
    return total
  end

  function row_reads.range(name, first, last)
    return range(plan_of(name), tonumber(first), tonumber(last), math.max(FIRST, last - first + 1))
  end

  function row_reads.at(name, rank)
    return range(plan_of(name), tonumber(rank), tonumber(rank), 1)[1]
  end

  function row_reads.up_to(name, score, from, most)
    return range(plan_of(name), from, from + most - 1, most, score)
  end

  function row_reads.down_from(name, score, least, most)
    local plan, found = plan_of(name), {}
    local last = count(plan, score) - 1
    local listed = last >= 0 and range(plan, math.max(0, last - most + 1), last, most) or {}
    for at = #listed - 1, 1, -2 do
      if least ~= '-inf' and listed[at + 1] < tonumber(least) then break end
      found[#found + 1], found[#found + 2] = listed[at], listed[at + 1]
    end
    return found
  end

  function row_reads.count_to(name, score) return count(plan_of(name), score, false) end

  function row_reads.count_below(name, score) return count(plan_of(name), score, true) end

  function row_reads.card(name)
    local plan = plan_of(name)
    return call('ZCARD', name) - #plan.left + #plan.come + #plan.fresh + #plan.far
  end

  function row_reads.alike(name)
    local alike = plan_of(name).alike
    return alike and alike.number
  end

  function row_reads.note_alike(name, counts, score, number)
    plan_of(name).alike = { counts = counts, score = tonumber(score), number = number }
  end

  -- Whether it is one of those that are alike at the head of its row; nil: it stands before them.
  local function is_alike(alike, member, score)
    local counts = string.sub(member, 1, 30)
    if score < alike.score or (score == alike.score and counts < alike.counts) then return nil end
    return score == alike.score and counts == alike.counts
  end

  -- Somebody that a reader told of leaves a row.
  function row_plans.take(name, member)
    local plan, score = plan_of(name), nil
    local rank = plan.ranks[member]
    for index, entry in ipairs(rank and {} or plan.come) do
      if entry.member == member then
        score = entry.score
        table.remove(plan.come, index)
        break
      end
    end
    if rank then
      local gone = plan.gone
      score, plan.left[#plan.left + 1] = plan.scores[rank], member
      table.insert(gone, gone_before(plan, rank) + 1, rank)
      while gone[1] == plan.skipped do
        table.remove(gone, 1)
        plan.skipped = plan.skipped + 1
      end
    end
    local alike = plan.alike
    if alike and is_alike(alike, member, score) then
      alike.number = alike.number - 1
      if alike.number < 1 then plan.alike = nil end
    end
  end

  -- Somebody comes to a row.
  function row_plans.bring(name, member, score)
    local plan = plan_of(name)
    plan.fresh[#plan.fresh + 1] = { member = member, score = score }
    local alike = plan.alike and is_alike(plan.alike, member, score)
    if alike then
      plan.alike.number = plan.alike.number + 1
    elseif alike == nil then
      plan.alike = nil
    end
  end

  -- Whom Redis has at and behind a member that a reader told of, as far as they were read; at most so many.
  function row_plans.neighbours(name, member, most)
    local plan, found = plan_of(name), { member }
    local rank = plan.ranks[member]
    while rank and #found < most and plan.members[rank + 1] do
      rank = rank + 1
      found[#found + 1] = plan.members[rank]
    end
    return found
  end

  function row_plans.write_coming()
    for name, plan in pairs(plans) do
      local written, size = {}, 0
      for _, list in ipairs({ plan.come, plan.fresh, plan.far }) do
        for _, entry in ipairs(list) do
          written[size + 1], written[size + 2] = integer(entry.score), entry.member
          size = size + 2
        end
      end
      if size > 0 then call('ZADD', name, unpack(written)) end
    end
  end

  -- What was planned is written then, and nothing is known any more.
  function row_plans.write_leaving()
    for name, plan in pairs(plans) do
      if plan.left[1] then call('ZREM', name, unpack(plan.left)) end
    end
    plans = {}
  end
end
