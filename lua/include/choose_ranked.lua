-- @include "include/shapes"
-- The least loaded node: the head of the request's shape, ties by rotation.

local function member_at(shape, rank)
  local found = redis.call('ZRANGE', shape.key, rank, rank, 'WITHSCORES')
  return found[1], found[2]
end

local function same_rank(member, other)
  return string.sub(member, 1, 30) == string.sub(other, 1, 30)
end

-- Equal candidates are neighbours: bisects for the last rank that ties with `first`.
local function last_tied(shape, first, member, score)
  local following = redis.call('ZRANGE', shape.key, first + 1, first + 1, 'WITHSCORES')
  if following[2] ~= score or not same_rank(member, following[1]) then return first end
  local low, high = first + 1, redis.call('ZCOUNT', shape.key, '-inf', score) - 1
  if same_rank(member, (member_at(shape, high))) then return high end
  while low + 1 < high do
    local middle = math.floor((low + high) / 2)
    if same_rank(member, (member_at(shape, middle))) then low = middle else high = middle end
  end
  return low
end

-- The ranks of the excluded nodes in this shape, ascending.
local function excluded_ranks(shape, excluded)
  local ranks = {}
  for node_id in pairs(excluded) do
    local row = row_of(node_id)
    local rank = row and redis.call('ZRANK', shape.key, row_member(row, node_id))
    if rank then ranks[#ranks + 1] = rank end
  end
  table.sort(ranks)
  return ranks
end

-- The best candidate of an open shape, as node id and score; nil when the shape is empty.
local function choose_ranked(shape, excluded, counter)
  local ranks = next(excluded) and excluded_ranks(shape, excluded) or {}
  local first = 0
  for _, rank in ipairs(ranks) do
    if rank == first then first = first + 1 end
  end
  local head = redis.call('ZRANGE', shape.key, first, first + 1, 'WITHSCORES')
  if not head[1] then return nil end
  local member, score = head[1], head[2]
  if head[4] ~= score or not same_rank(member, head[3]) then return string.sub(member, 31), tonumber(score) end
  local last = last_tied(shape, first, member, score)
  local tied = last - first + 1
  for _, rank in ipairs(ranks) do
    if rank >= first and rank <= last then tied = tied - 1 end
  end
  local chosen = first + counter % tied
  for _, rank in ipairs(ranks) do
    if rank >= first and rank <= chosen then chosen = chosen + 1 end
  end
  return string.sub((member_at(shape, chosen)), 31), tonumber(score)
end

-- How many nodes of a shape do not fit, by dimension. The excluded ones count elsewhere.
local function count_unfit(shape, settings, excluded)
  local cpu = redis.call('ZCOUNT', shape.key, string.format('%.17g', UNFIT_FLOOR), '(' .. string.format('%.17g', UNFIT_MEMORY_FLOOR))
  local memory = redis.call('ZCOUNT', shape.key, string.format('%.17g', UNFIT_MEMORY_FLOOR), '+inf')
  for node_id in pairs(excluded) do
    local row = row_of(node_id)
    if row and shape.pools[row.pool] then
      local _, reason = score_of(row, shape, settings)
      if reason == 'insufficient_cpu' then cpu = cpu - 1 end
      if reason == 'insufficient_memory' then memory = memory - 1 end
    end
  end
  return cpu, memory
end
