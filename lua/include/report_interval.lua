-- When a node's reports were received: its usual time between two of them, in milliseconds.
local report_times = { interval_least_ms = 1000 }

-- With the newest one in it.
function report_times.learned_interval(interval_ms, gap_ms)
  if not interval_ms then return math.max(report_times.interval_least_ms, gap_ms) end
  return math.max(report_times.interval_least_ms, math.floor(interval_ms + (gap_ms - interval_ms) / 8))
end
