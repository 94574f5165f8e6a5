-- The server's clock in milliseconds, never behind the last time a script used: a failover to
-- a slower clock must not run deadlines backwards. Tests hand a virtual `given` in.
local function read_clock(given, last)
  local now
  if given ~= '' then
    now = tonumber(given)
  else
    local time = redis.call('TIME')
    now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
  end
  last = tonumber(last or '') or 0
  if last > now then return last end
  return now
end

local function open_clock(given)
  return read_clock(given, redis.call('HGET', key('cursors'), 'now'))
end

local function close_clock(now)
  redis.call('HSET', key('cursors'), 'now', integer(now))
end
