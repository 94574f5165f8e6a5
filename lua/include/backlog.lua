-- @include "include/rows"
-- What fell due since the last call, noticed before anything is decided. Mostly there is nothing, so
-- the heads of the two queues are read first and the rest is made only when needed.

local function work_off_expiry(now)
  -- @include "include/reservations"
  return expire_due(now, EXPIRY_SLICE) < EXPIRY_SLICE
end

local function work_off_silence(now, settings)
  -- @include "include/silence"
  read_binding_settings(settings)
  return retire_silent(now, settings.report_ttl_ms, settings.binding_ttl_ms) < SILENCE_SLICE
end

-- Two answers: whether every overdue node has been noticed, whether every due reservation has.
local function notice_backlog(now, settings)
  local noticed, swept = true, true
  local oldest = redis.call('ZRANGE', key('seen'), '0', '0', 'WITHSCORES')[2]
  if oldest and tonumber(oldest) < now - settings.report_ttl_ms then noticed = work_off_silence(now, settings) end
  local due = redis.call('ZRANGE', key('expiry'), '0', '0', 'WITHSCORES')[2]
  if due and tonumber(due) <= now then swept = work_off_expiry(now) end
  if row_order[1] then save_rows() end
  return noticed, swept
end
