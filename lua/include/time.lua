-- Ledger time, in milliseconds: the server's clock and an offset that is kept with the last time used. A clock that
-- is stepped back, or a failover to a slower one, raises the offset, so time goes on from where it was, at the
-- clock's own pace. A clock that moves on by more than any replica is silent (keepalives come every second) has
-- been stepped forward, or nobody was there: that much of the offset is given back.
local clock_offset = 0

-- `last` and `offset` as they are kept. Tests hand a virtual clock in as `given`.
local function read_clock(given, last, offset)
  local CLOCK_GAP_MS, clock = 2000, nil
  if given ~= '' then
    clock = tonumber(given)
  else
    local time = redis.call('TIME')
    clock = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
  end
  if not last then return clock end
  last, clock_offset = tonumber(last), tonumber(offset or '0')
  local passed = clock + clock_offset - last
  if passed < 0 then
    clock_offset = clock_offset - passed
  elseif clock_offset > 0 and passed > CLOCK_GAP_MS then
    clock_offset = math.max(0, clock_offset - passed)
  end
  return clock + clock_offset
end
