-- @include "include/rows"
-- Rotation: the smallest id greater than the last chosen one, else the smallest.

-- The sets that a request may choose from: the whole one, or its parts with the labels that the request requires.
local function parts_of(set, matches)
  if not matches then return { set } end
  local parts = {}
  for labels in pairs(matches) do parts[#parts + 1] = set .. ':' .. labels end
  return parts
end

-- The first ids of these sets together between two bounds.
local function first_ids(sets, from, ceiling, limit)
  if #sets == 1 then return redis.call('ZRANGEBYLEX', key(sets[1]), from, ceiling, 'LIMIT', '0', limit) end
  local ids = {}
  for _, set in ipairs(sets) do
    for _, node_id in ipairs(redis.call('ZRANGEBYLEX', key(set), from, ceiling, 'LIMIT', '0', limit)) do
      ids[#ids + 1] = node_id
    end
  end
  table.sort(ids)
  for index = #ids, tonumber(limit) + 1, -1 do ids[index] = nil end
  return ids
end

-- The next id after `cursor` that `accepts`, wrapping once; gives up after looking at a bounded number.
-- The first try reads one id only: mostly it is the one.
local function rotate(sets, cursor, accepts)
  local position, wrapped, looked, batch = cursor and '(' .. cursor or '-', cursor == nil, 0, 1
  while looked <= 128 do
    local ceiling = wrapped and cursor and '[' .. cursor or '+'
    local node_ids = first_ids(sets, position, ceiling, batch == 1 and '1' or '64')
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

-- Uniform over the sets: the caller's random number picks a rank, the excluded are skipped.
local function pick_random(sets, entropy, excluded)
  local found, total = {}, 0
  for index, set in ipairs(sets) do
    local ranks = {}
    for node_id in pairs(excluded) do
      local rank = redis.call('ZRANK', key(set), node_id)
      if rank then ranks[#ranks + 1] = rank end
    end
    found[index] = { set = set, ranks = ranks, count = redis.call('ZCARD', key(set)) - #ranks }
    total = total + found[index].count
  end
  if total <= 0 then return nil end
  local chosen = entropy % total
  for _, each in ipairs(found) do
    if chosen < each.count then
      table.sort(each.ranks)
      for _, rank in ipairs(each.ranks) do
        if rank <= chosen then chosen = chosen + 1 end
      end
      return redis.call('ZRANGE', key(each.set), chosen, chosen)[1]
    end
    chosen = chosen - each.count
  end
end
