-- Included inside among_ties (include/choose_ranked): equal candidates are neighbours in id order,
-- so a tie is a block of ranks; its end is found by bisecting, and the counter picks within it.

local function member_at(shape, rank)
  return redis.call('ZRANGE', shape.key, rank, rank)[1]
end

local function same_rank(member, other)
  return string.sub(member, 1, 30) == string.sub(other, 1, 30)
end

local function last_tied(shape, first, member, score)
  local low, high = first, redis.call('ZCOUNT', shape.key, '-inf', score) - 1
  if same_rank(member, member_at(shape, high)) then return high end
  while low + 1 < high do
    local middle = math.floor((low + high) / 2)
    if same_rank(member, member_at(shape, middle)) then low = middle else high = middle end
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

local function choose_among_ties(shape, excluded, counter)
  local ranks, first = excluded_ranks(shape, excluded), 0
  for _, rank in ipairs(ranks) do
    if rank == first then first = first + 1 end
  end
  local head = redis.call('ZRANGE', shape.key, first, first, 'WITHSCORES')
  if not head[1] then return nil end
  local last = last_tied(shape, first, head[1], head[2])
  local tied = last - first + 1
  for _, rank in ipairs(ranks) do
    if rank >= first and rank <= last then tied = tied - 1 end
  end
  local chosen = first + counter % tied
  for _, rank in ipairs(ranks) do
    if rank >= first and rank <= chosen then chosen = chosen + 1 end
  end
  return string.sub(member_at(shape, chosen), 31), tonumber(head[2])
end
