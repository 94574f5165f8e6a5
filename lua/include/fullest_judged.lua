-- Stands inside include/fullest: rows whose nodes must be asked about one by one, for exclusions, for limits, or because
-- their capacities or loads differ within the row.

-- The first accepted nodes of a row from the highest score down that stay within the share, and those that tie with them.
local function fullest_accepted(item, most, share, picker)
  local class = item.class
  local weighed = class.weighed or item.row == class.last
  local from, batch, members = 0, 2, {}
  while true do
    local found = redis.call('ZREVRANGEBYSCORE', item.key, string.format('%.17g', most), '-inf', 'WITHSCORES', 'LIMIT',
      integer(from), integer(batch))
    for index = 1, #found, 2 do
      local member, score = found[index], tonumber(found[index + 1])
      local node_id = string.sub(member, 31)
      if members[1] and (score < item.score or #members >= TIED_MOST) then found = {} break end
      if picker.accepts(node_id, class) then
        picker.looked = picker.looked + 1
        local row = weighed and row_of(node_id)
        local pressure = row and pressure_on(row, picker.demand) or math.max(item.cpu, memory_pressure(class, score))
        if pressure <= share and (not members[1] or pressure == item.pressure) then
          item.score, item.pressure, members[#members + 1] = score, pressure, member
        end
      end
      if gives_up(picker) then found = {} break end
    end
    if #found < 2 * batch then break end
    from, batch = from + batch, math.min(64, batch * 2)
  end
  if not members[1] then return nil end
  item.list, item.running = with_most_running(members)
  item.tied = #item.list
  if item.score > item.least then item.head = NOT_THE_HEAD end
  return item
end
