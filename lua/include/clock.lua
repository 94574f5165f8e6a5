-- @include "include/cursors"
-- The clock of scripts that turn no rotation.
local function open_clock(given)
  return read_clock(given, redis.call('HGET', key('rotations'), 'now'))
end

local function close_clock(now)
  redis.call('HSET', key('rotations'), 'now', integer(now))
end
