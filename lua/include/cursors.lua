-- @include "include/keys"
-- Ledger time, in milliseconds: the server's clock and an offset that is kept with the last time used. A clock that
-- is stepped back, or a failover to a slower one, raises the offset, so time goes on from where it was, at the
-- clock's own pace. A clock that moves on by more than any replica is silent (keepalives come every second) has
-- been stepped forward, or nobody was there: that much of the offset is given back.
local CLOCK_GAP_MS = 2000
local clock_offset = 0

-- `last` and `offset` as they are kept. Tests hand a virtual clock in as `given`.
local function read_clock(given, last, offset)
  local clock
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

-- Where every rotation stands, and the last time used. Some count, the others name the node chosen last.
local function read_cursors()
  local found = redis.call('HMGET', key('rotations'), 'now', 'offset', 'ties', 'ordinary_ties', 'round_robin', 'ordinary',
    'groups', 'fallback', 'placed')
  return {
    now = found[1], offset = found[2], ties = found[3], ordinary_ties = found[4], round_robin = found[5] or nil,
    ordinary = found[6] or nil, groups = found[7] or nil, fallback = found[8] or nil,
    placed = found[9],
  }
end

local function is_counter(cursor)
  return cursor == 'ties' or cursor == 'ordinary_ties'
end
