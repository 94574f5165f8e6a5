-- @include "include/report_times"
-- Adds a report to the field `reports` (include/report_times), without making a table of it where the oldest one is to be
-- left out.
local function format_report(text, generation, now)
  local count, before, least = 0, nil, math.huge
  for at_ms in string.gmatch(text, ':(%d+)') do
    if before and at_ms - before < least then least = at_ms - before end
    count, before = count + 1, at_ms
  end
  if count > report_times.kept or (count == report_times.kept and least < report_times.interval_least_ms) then
    return report_times.format(report_times.parse(text), generation, now)
  end
  if count == report_times.kept then text = string.match(text, ',(.*)$') end
  return string.format('%s%s%d:%d', text, text == '' and '' or ',', generation, now)
end
