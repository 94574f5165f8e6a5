-- @include "include/keys"
-- @include "include/integer"
-- Placements and refusals of the last minute, by the second:
--   rotations, field placed   'second,count' of the second that placements are counted in now
--   rates     hash: p<slot> → 'second,count', r<slot> → 'second,reason=count,…'; a slot is the second modulo 64
local RATE_SLOTS = 64

-- The field `placed` with one placement more, or as many as `more`; a second that is over goes to its slot.
local function count_placed(placed, now, more)
  local second = math.floor(now / 1000)
  local at, count = string.match(placed or '', '^(%d+),(%d+)$')
  at = tonumber(at)
  if at == second then return string.format('%d,%d', second, count + (more or 1)) end
  if at then redis.call('HSET', key('rates'), 'p' .. integer(at % RATE_SLOTS), placed) end
  return string.format('%d,%d', second, more or 1)
end

-- A refusal, or as many as `more`, counts under the reason that keeps most nodes out.
local function count_refused(reason, now, more)
  local second = math.floor(now / 1000)
  local field, counts = 'r' .. integer(second % RATE_SLOTS), {}
  local text = redis.call('HGET', key('rates'), field) or ''
  local parts = { integer(second) }
  if string.match(text, '^%d+') == parts[1] then
    for name, count in string.gmatch(text, '([^,=]+)=(%d+)') do counts[name] = tonumber(count) end
  end
  counts[reason] = (counts[reason] or 0) + (more or 1)
  for name, count in pairs(counts) do parts[#parts + 1] = name .. '=' .. integer(count) end
  redis.call('HSET', key('rates'), field, table.concat(parts, ','))
end
