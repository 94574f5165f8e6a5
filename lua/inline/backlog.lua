-- inline/backlog.lua: what time has ended is worked off before anything is decided: silent nodes, due reservations, and
-- nodes that may be tried again. Ends the script while more nodes have fallen silent than one call takes.
-- Reads: now
-- Sets: avoided, now_ms, swept
local swept, now_ms = true, integer(now)
-- @inline "inline/notice_silence"
if redis.call('ZCOUNT', key('expiry'), '-inf', now_ms) > 0 then
  -- @inline "include/deadlines"
  swept = overdue.work_off(now, overdue.SLICE) < overdue.SLICE
  save_rows()
end

-- Who refuses what it is given; the next one that may be tried again stands first.
local avoided = redis.call('ZRANGE', key('avoided_until'), '0', '0', 'WITHSCORES')
if avoided[1] and tonumber(avoided[2]) <= now then
  -- @inline "include/avoidance"
  readmit_avoided(now)
  save_rows()
end
