-- The fullest node of some classes that has no more than a share of its capacity in use with the request on it.
--   of each class: the highest row whose CPUs stay within the share and that has a node whose memory does, and in it the
--   node with most memory that does; of these the one with the highest pressure; then the one with most running, then in
--   turn
-- So a class whose memory is what fills up is seen by its CPUs first: one look a class instead of one a row.
-- @include "include/fill_reach"
local TIED_MOST, LOOKED_MOST, NOT_THE_HEAD = 64, 1024, {}

-- The pressure of the best class so far: which nodes of a row tie matters only where it is reached.
local reached = -1

local function gives_up(picker)
  return picker.unproven or (picker.looked or 0) > LOOKED_MOST
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

-- Sets the nodes of a row that tie at a score, of which the last one is known: as a list, or as a block of one count that
-- takes turns by rank.
local function find_block(item, text, last)
  local before = row_reads.count_below(item.key, text)
  local tied = row_reads.count_to(item.key, text) - before
  if tied > TIED_MOST then
    local first = row_reads.glance(item.key, before)
    if string.sub(first, 1, 30) == string.sub(last, 1, 30) then
      item.first, item.tied, item.running = before, tied, string.sub(first, 11, 20)
      return
    end
  end
  local found, members = row_reads.down_from(item.key, text, text, TIED_MOST + 1), {}
  for at = 1, #found, 2 do members[#members + 1] = found[at] end
  item.list, item.running = with_most_running(members)
  item.tied = #item.list
end

-- The fullest nodes of a row that nobody needs to be asked about. Nil, and second whether the class is done with: none of it
-- comes up to the best so far; or else the row's head is not what the array says, which is put right.
local function fullest_of_row(class, row, cpu, least, reach)
  local name, bounded = cpu_rows.key_of(class.name, row), cpu < reached and class.per_memory < math.huge
  local found = row_reads.down_from(name, reach.text, bounded and floor_of(reach, reached) or '-inf', 2)
  if not found[1] then
    if bounded then return nil, true end
    local head = row_reads.range(name, '0', '0')[2]
    cpu_rows.set_head(class.name, row, head and tonumber(head) or EMPTY)
    cpu_rows.flush()
    return nil, false
  end
  local score = tonumber(found[2])
  local pressure = math.max(cpu, memory_pressure(class, score))
  if pressure < reached then return nil, true end
  local item = { class = class, row = row, cpu = cpu, least = least, key = name, score = score, pressure = pressure }
  if score > least then item.head = NOT_THE_HEAD end
  if found[4] == found[2] then
    find_block(item, found[2], found[1])
  else
    item.list, item.tied, item.running = { found[1] }, 1, string.sub(found[1], 11, 20)
  end
  return item, true
end

-- The first row from `last` down of which `judge` finds a node, whose nodes must be asked about.
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

local function fullest_of_class(class, reach, cpus, judged)
  local last, most = reach.last, reach.score
  if class.picky or class.weighed or (class.last and last >= class.last) then
    return walk_down(class, cpus, last, most, function(item) return judged(item, most) end)
  end
  local name, step, per_cpu = class.name, class.step or 1, class.per_cpu
  local tops = cpu_rows.classes[name]
  for number = math.min(#tops - 3, math.floor(last / CHUNK)), 0, -1 do
    if tops[number + 3] <= most then
      local scores, base = chunk_heads(name, number), number * CHUNK - 1
      for at = math.min(CHUNK, last - base), 1, -1 do
        if scores[at] <= most then
          local row = base + at
          local item, done = fullest_of_row(class, row, (row * step + cpus) / per_cpu, scores[at], reach)
          if done then return item end
        end
      end
    end
  end
  return nil
end

-- As `best` in include/search has it. `judge` (include/fullest_judged): for classes whose nodes must be asked about one by
-- one. `picker.unproven`: too many were refused to know.
local function fullest(classes, demand, share, picker, judge)
  local tied, total = {}, 0
  reached = -1
  local reaches = reach_of_all(classes, demand.cpu, share)
  local function judged(item, most) return judge(item, most, share, picker), gives_up(picker) end
  for index, class in ipairs(classes) do
    local item = fullest_of_class(class, reaches[index], demand.cpu, judged)
    local best = tied[1]
    if item and (not best or item.pressure > best.pressure
      or (item.pressure == best.pressure and item.running > best.running)) then
      tied, total, reached = { item }, item.tied, item.pressure
    elseif item and item.pressure == best.pressure and item.running == best.running then
      tied[#tied + 1], total = item, total + item.tied
    end
    if judge and gives_up(picker) then break end
  end
  return tied[1] and take_turn(tied, total, picker.counter)
end
