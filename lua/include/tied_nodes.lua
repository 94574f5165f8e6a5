-- Stands inside include/ties: several nodes of one row have the same pressure.
-- @include "include/highest_score"
-- @include "include/row_reads_more"
local function counts_of(member)
  return string.sub(member, 1, 30)
end

-- Of the nodes of one row that are within its memory limit, those with the least counts among the first by memory that are
-- accepted.
local PASSED_MOST = 256

local function list_accepted(item, picker, share)
  local list, least, size, taken, from = {}, nil, 0, 0, 0
  while true do
    local members = row_reads.up_to(item.key, item.most, from, share)
    for index = 1, #members do
      local member = members[index]
      local counts = string.sub(member, 1, 30)
      if (not least or counts <= least) and picker.accepts(string.sub(member, 31), item.class) then
        taken = taken + 1
        if counts ~= least then list, least, size = {}, counts, 0 end
        size = size + 1
        list[size] = member
      end
      if picker.unproven then return list end
    end
    from = from + share
    if #members < share or taken >= share or from >= PASSED_MOST then
      table.sort(list)
      return list
    end
  end
end

-- Equal counts and equal memory are neighbours in a row: where they end, counted from its head.
local function find_end(item, counts, score)
  local low, high = 0, row_reads.count_to(item.key, score) - 1
  local function same(rank) return counts_of(row_reads.glance(item.key, rank)) == counts end
  if same(high) then return high end
  while low + 1 < high do
    local middle = math.floor((low + high) / 2)
    if same(middle) then low = middle else high = middle end
  end
  return low
end

-- How many nodes are like the head of a row.
local function count_alike(item)
  local counts, score = counts_of(item.head[1]), item.head[2]
  local alike = row_reads.alike(item.key)
  if not alike then
    alike = find_end(item, counts, score) + 1
    row_reads.note_alike(item.key, counts, score, alike)
  end
  return alike
end

-- Sets where the nodes with the least counts stand, and returns these counts.
local function find_among(item, least, picker, share)
  local class, head = item.class, item.head
  if item.list then
    table.sort(item.list)
    local list = { item.list[1] }
    for index = 2, #item.list do
      if counts_of(item.list[index]) == counts_of(list[1]) then list[index] = item.list[index] end
    end
    item.list = list
  elseif class.picky then
    item.most = class.per_memory < math.huge and highest_score(class, least) or class.most
    item.list = list_accepted(item, picker, share)
    if not item.list[1] then item.list = { class.accepted[item.row] } end
  elseif item.cpu >= least and (row_reads.alike(item.key) or 0) > share then
    item.tied = row_reads.alike(item.key)
  elseif item.cpu >= least then
    local more
    item.most = class.per_memory < math.huge and highest_score(class, least) or class.most
    item.list, more = row_reads.least_counts(item.key, item.most, share)
    -- So many alike that memory tells none of them apart.
    local alike = more and #item.list == share and count_alike(item) or 0
    if alike > share then item.list, item.tied = nil, alike end
  elseif head[4] == head[2] and counts_of(head[3]) == counts_of(head[1]) then
    item.tied = count_alike(item)
  else
    item.list = { head[1] }
  end
  if item.list and not item.list[1] then item.list = { head[1] } end
  if item.list then item.tied = #item.list end
  return counts_of(item.list and item.list[1] or head[1])
end
