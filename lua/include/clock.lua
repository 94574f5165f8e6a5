-- @include "include/cursors"
-- The clock of scripts that turn no rotation.
local function open_clock(given)
  return read_clock(given, redis.call('HGET', key('cursors'), 'now'))
end

local function close_clock(now)
  redis.call('HSET', key('cursors'), 'now', integer(now))
end
