-- Stands inside include/choose_ranked: nodes that rank as unknown, by counts, equal ones in turn.
local LISTED_MOST = 64

local function counts_of(member)
  return string.sub(member, 1, 30)
end

-- How many nodes have the same counts as this one, which is the first of them.
local function size_of_block(name, member)
  local beyond = redis.call('ZRANGEBYLEX', name, '(' .. counts_of(member) .. '\255', '+', 'LIMIT', 0, 1)[1]
  return (beyond and redis.call('ZRANK', name, beyond) or redis.call('ZCARD', name)) - redis.call('ZRANK', name, member)
end

-- The first one that is accepted, and how many nodes have its counts.
local function first_accepted(name, picker)
  local from, batch = 0, 2
  while true do
    local members = redis.call('ZRANGE', name, integer(from), integer(from + batch - 1))
    for _, member in ipairs(members) do
      if picker.accepts(string.sub(member, 31)) then
        local counts = counts_of(member)
        return counts, size_of_block(name, redis.call('ZRANGEBYLEX', name, '[' .. counts, '+', 'LIMIT', 0, 1)[1])
      elseif picker.unproven then
        return nil
      end
    end
    if #members < batch then return nil end
    from, batch = from + batch, math.min(64, batch * 2)
  end
end

-- Of few equal ones all that are accepted, of many the first from the one whose turn it is, and on from the beginning.
local function equal_ones(name, counts, count, picker)
  local from, upto, many = '[' .. counts, '(' .. counts .. '\255', count > LISTED_MOST
  local list, asked, at = {}, 0, many and picker.counter % count or 0
  while asked < count do
    local members = redis.call('ZRANGEBYLEX', name, from, upto, 'LIMIT', integer(at), LISTED_MOST)
    for _, member in ipairs(members) do
      if picker.accepts(string.sub(member, 31)) then
        list[#list + 1] = { key = name, member = member }
        if many then return list end
      elseif picker.unproven then
        return list
      end
    end
    asked, at = asked + math.max(1, #members), #members == LISTED_MOST and at + LISTED_MOST or 0
  end
  return list
end

local function choose_unknown(pools, picker)
  local least, sources = nil, {}
  for pool in string.gmatch(pools, '.') do
    local name = key('unknown:' .. pool)
    local counts, count = first_accepted(name, picker)
    if counts and (not least or counts < least) then least, sources = counts, {} end
    if counts and counts == least then sources[#sources + 1] = { name = name, count = count } end
  end
  local list = {}
  for _, source in ipairs(sources) do
    for _, entry in ipairs(equal_ones(source.name, least, source.count, picker)) do list[#list + 1] = entry end
  end
  if not list[1] then return nil end
  table.sort(list, function(one, other) return string.sub(one.member, 31) < string.sub(other.member, 31) end)
  return list[1 + picker.counter % #list]
end
