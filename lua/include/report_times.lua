-- @include "include/reply"
-- @include "include/report_interval"
-- The last reports of a node that told a roster, with the times they were received at.
report_times.kept = 8

-- 'generation:received_at_ms,…' of this instance's last reports with a roster, oldest first.
function report_times.parse(text)
  local reports = {}
  for generation, at_ms in string.gmatch(text or '', '(%d+):(%d+)') do
    reports[#reports + 1] = { generation = tonumber(generation), at_ms = tonumber(at_ms) }
  end
  return reports
end

-- With a report more. Of a burst the ones in between are left out, so that it does not push out the old ones.
function report_times.format(reports, generation, now)
  reports[#reports + 1] = { generation = generation, at_ms = now }
  if #reports > report_times.kept then
    local closest, least = 2, math.huge
    for index = 2, #reports - 1 do
      local gap = reports[index].at_ms - reports[index - 1].at_ms
      if gap < least then closest, least = index, gap end
    end
    table.remove(reports, least < report_times.interval_least_ms and closest or 1)
  end
  local parts = {}
  for index, report in ipairs(reports) do parts[index] = integer(report.generation) .. ':' .. integer(report.at_ms) end
  return table.concat(parts, ',')
end
