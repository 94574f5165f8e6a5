-- Of the first members of a list, so many, those with the least counts, by id; and these counts.
local function least_counts(members, size)
  local list, least, taken = {}, nil, 0
  for index = 1, size do
    local member = members[index]
    local counts = string.sub(member, 1, 30)
    if not least or counts < least then list, least, taken = {}, counts, 0 end
    if counts == least then
      taken = taken + 1
      list[taken] = member
    end
  end
  table.sort(list)
  return list, least
end
