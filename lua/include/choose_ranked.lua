-- @include "include/shapes"
-- The least loaded node: the head of the request's shape, ties by rotation.

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
  if head[4] == score and string.sub(member, 1, 30) == string.sub(head[3], 1, 30) then
    return among_ties(shape, excluded, counter)
  end
  return string.sub(member, 31), tonumber(score)
end
