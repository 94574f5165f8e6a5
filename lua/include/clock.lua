-- @include "include/keys"
-- @include "include/time"
-- The clock of scripts that turn no rotation.
local function open_clock(given)
  local kept = redis.call('HMGET', key('rotations'), 'now', 'offset')
  return read_clock(given, kept[1], kept[2])
end

local function close_clock(now)
  redis.call('HSET', key('rotations'), 'now', integer(now), 'offset', integer(clock_offset))
end
