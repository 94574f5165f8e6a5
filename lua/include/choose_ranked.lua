-- @include "include/shapes"
-- The least loaded node: the head of the request's shape, ties by rotation. Equal candidates are
-- neighbours in id order, so a tie is a block of ranks and a counter picks within it.

local function among_ties(shape, excluded, counter)
  -- @include "include/ties"
  return choose_among_ties(shape, excluded, counter)
end

-- The best candidate of an open shape, as node id and score; nil when the shape is empty.
local function choose_ranked(shape, excluded, counter)
  if next(excluded) then return among_ties(shape, excluded, counter) end
  local head = redis.call('ZRANGE', shape.key, '0', '1', 'WITHSCORES')
  local member, score = head[1], head[2]
  if not member then return nil end
  local counts = string.sub(member, 1, 30)
  if head[4] == score and string.sub(head[3], 1, 30) == counts then
    -- Mostly the whole block of equal pressure ties; where counts differ within it, it is bisected.
    local last = redis.call('ZCOUNT', shape.key, '-inf', score) - 1
    local found = redis.call('ZRANGE', shape.key, integer(last), integer(last))[1]
    if string.sub(found, 1, 30) ~= counts then return among_ties(shape, excluded, counter) end
    local chosen = counter % (last + 1)
    if chosen < last then found = redis.call('ZRANGE', shape.key, integer(chosen), integer(chosen))[1] end
    member = found
  end
  return string.sub(member, 31), tonumber(score)
end
