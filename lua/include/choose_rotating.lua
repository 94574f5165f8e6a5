-- @include "include/rows"
-- Rotation: the smallest id greater than the last chosen one, else the smallest.

-- The next id after `cursor` that `accepts`, wrapping once; gives up after looking at a bounded number.
-- The first try reads one id only: mostly it is the one.
local function rotate(set, cursor, accepts)
  local position, wrapped, looked, batch = cursor and '(' .. cursor or '-', cursor == nil, 0, 1
  while looked <= 128 do
    local ceiling = wrapped and cursor and '[' .. cursor or '+'
    local node_ids = redis.call('ZRANGEBYLEX', key(set), position, ceiling, 'LIMIT', '0', batch == 1 and '1' or '64')
    for _, node_id in ipairs(node_ids) do
      if accepts(node_id) then return node_id end
    end
    looked = looked + #node_ids
    if #node_ids == batch then
      position = '(' .. node_ids[batch]
    elseif wrapped then
      return nil
    else
      wrapped, position = true, '-'
    end
    batch = 64
  end
  return nil
end

-- Uniform over the set: the caller's random number picks a rank, the excluded are skipped.
local function pick_random(set, entropy, excluded)
  local ranks = {}
  for node_id in pairs(excluded) do
    local rank = redis.call('ZRANK', key(set), node_id)
    if rank then ranks[#ranks + 1] = rank end
  end
  local count = redis.call('ZCARD', key(set)) - #ranks
  if count <= 0 then return nil end
  table.sort(ranks)
  local chosen = entropy % count
  for _, rank in ipairs(ranks) do
    if rank <= chosen then chosen = chosen + 1 end
  end
  return redis.call('ZRANGE', key(set), chosen, chosen)[1]
end
