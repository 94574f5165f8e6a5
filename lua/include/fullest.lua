-- The fullest node of some classes that has no more than a share of its capacity in use with the request on it.
--   of each class: the highest row whose CPUs stay within the share and that has a node whose memory does, and in it the
--   node with most memory that does; of these the one with the highest pressure; then the one with most running, then in
--   turn
-- So a class whose memory is what fills up is seen by its CPUs first: one look a class instead of one a row.
-- @include "include/highest_score"
local TIED_MOST, LOOKED_MOST, NOT_THE_HEAD = 64, 1024, {}

-- The pressure of the best class so far: which nodes of a row tie matters only where it is reached.
local reached = -1

local function gives_up(picker)
  return picker.unproven or (picker.looked or 0) > LOOKED_MOST
end

-- The last row of a class that stays within the share, and the highest score that does. Nodes of even memory count as those
-- with most of it, so that none is filled beyond the share.
local function reach_of(class, cpus, share)
  local last, per_cpu, step = class.final, class.per_cpu, class.step or 1
  if per_cpu < math.huge then
    local row = math.floor((share * per_cpu - cpus) / step)
    while ((row + 1) * step + cpus) / per_cpu <= share do row = row + 1 end
    while (row * step + cpus) / per_cpu > share do row = row - 1 end
    last = math.min(last, row)
  end
  if class.per_memory == math.huge then return last, class.most end
  local tops, bound = cpu_rows.classes[class.name], class
  if not class.weighed and tops[2] > tops[1] then
    bound = { per = class.per + tops[2] - tops[1], per_memory = tops[2], most = class.most }
  end
  return last, highest_score(bound, share)
end

-- Those with most running among members of equal memory, by id; `running`: how many, as members have it.
local function with_most_running(members)
  local list, most = {}, ''
  for _, member in ipairs(members) do
    local running = string.sub(member, 11, 20)
    if running > most then list, most = {}, running end
    if running == most then list[#list + 1] = member end
  end
  table.sort(list, function(one, other) return string.sub(one, 31) < string.sub(other, 31) end)
  return list, most
end

-- Sets the nodes of a row that tie at a score: as a list, or as a block of one count that takes turns by rank.
local function find_block(item, text)
  local found, members = row_reads.down_from(item.key, text, text, TIED_MOST + 1), {}
  for at = 1, #found, 2 do members[#members + 1] = found[at] end
  if #members > TIED_MOST then
    local before = row_reads.count_below(item.key, text)
    local first = row_reads.at(item.key, integer(before))
    if string.sub(first, 1, 30) == string.sub(members[1], 1, 30) then
      item.first, item.tied = before, row_reads.count_to(item.key, text) - before
      item.running = string.sub(first, 11, 20)
      return
    end
  end
  item.list, item.running = with_most_running(members)
  item.tied = #item.list
end

-- The fullest nodes of a row that nobody needs to be asked about. Nil: its head is not what the array says, which is put
-- right.
local function fullest_of_row(item, most)
  local found = row_reads.down_from(item.key, most, '-inf', 2)
  if not found[1] then
    local head = row_reads.range(item.key, '0', '0')[2]
    cpu_rows.set_head(item.class.name, item.row, head and tonumber(head) or EMPTY)
    cpu_rows.flush()
    return nil
  end
  item.score = tonumber(found[2])
  if item.score > item.least then item.head = NOT_THE_HEAD end
  item.pressure = math.max(item.cpu, memory_pressure(item.class, item.score))
  if item.pressure < reached then return item end
  if found[4] == found[2] then
    find_block(item, found[2])
  else
    item.list, item.tied, item.running = { found[1] }, 1, string.sub(found[1], 11, 20)
  end
  return item
end

-- The first row from `last` down of which `judge` finds a node.
local function walk_down(class, cpus, last, most, judge)
  local tops = cpu_rows.classes[class.name]
  for number = math.min(#tops - 3, math.floor(last / CHUNK)), 0, -1 do
    local scores = tops[number + 3] <= most and chunk_heads(class.name, number)
    for at = scores and CHUNK or 0, 1, -1 do
      local row = number * CHUNK + at - 1
      if scores[at] <= most and row <= last then
        local found, given_up = judge({
          class = class, row = row, cpu = (row * (class.step or 1) + cpus) / class.per_cpu, least = scores[at],
          key = key('row:' .. class.name .. ':' .. integer(row)),
        }, most)
        if found or given_up then return found end
      end
    end
  end
  return nil
end

local function fullest_of_class(class, demand, share, picker, judge)
  local last, most = reach_of(class, demand.cpu, share)
  if class.picky or class.weighed or (class.last and last >= class.last) then
    return walk_down(class, demand.cpu, last, most, function(item)
      return judge(item, most, share, picker), gives_up(picker)
    end)
  end
  return walk_down(class, demand.cpu, last, most, fullest_of_row)
end

-- As `best` in include/search has it. `judge` (include/fullest_judged): for classes whose nodes must be asked about one by
-- one. `picker.unproven`: too many were refused to know.
local function fullest(classes, demand, share, picker, judge)
  local tied, total = {}, 0
  reached = -1
  for _, class in ipairs(classes) do
    local item = fullest_of_class(class, demand, share, picker, judge)
    local best = tied[1]
    if item and (not best or item.pressure > best.pressure
      or (item.pressure == best.pressure and item.running > best.running)) then
      tied, total, reached = { item }, item.tied, item.pressure
    elseif item and item.pressure == best.pressure and item.running == best.running then
      tied[#tied + 1], total = item, total + item.tied
    end
    if gives_up(picker) then break end
  end
  return tied[1] and take_turn(tied, total, picker.counter)
end
