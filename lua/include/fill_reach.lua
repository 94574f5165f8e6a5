-- @include "include/highest_score"
-- Stands inside include/fullest: which rows and scores of classes stay within the share.

-- The last row of a class that stays within the share, and the highest score that does. Nodes of even memory count as those
-- with most of it, so that none is filled beyond the share.
local function work_out_reach(class, cpus, share)
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

-- The same as a table: `last`, `score`, and that as `text`. Classes of machines that are alike follow each other and have it
-- in common.
local known = {}

local function reach_of(class, cpus, share)
  local largest = cpu_rows.classes[class.name][2]
  if known.per_cpu ~= class.per_cpu or known.final ~= class.final or known.per ~= class.per or known.most ~= class.most
    or known.per_memory ~= class.per_memory or known.largest ~= largest or known.step ~= class.step
    or known.weighed ~= class.weighed then
    local last, score = work_out_reach(class, cpus, share)
    known = {
      per_cpu = class.per_cpu, final = class.final, step = class.step, per = class.per, per_memory = class.per_memory,
      most = class.most, largest = largest, weighed = class.weighed, last = last, score = score,
      text = string.format('%.17g', score), floor = '-inf', floor_of = -1,
    }
  end
  return known
end

-- A score, as text, below which nobody comes up to a pressure.
local function floor_of(reach, reached)
  if reach.floor_of ~= reached then
    reach.floor_of = reached
    reach.floor = string.format('%.17g', math.floor(reached * reach.per_memory - reach.per) - 1)
  end
  return reach.floor
end

-- What stays within the share of each class. The chunks that they will be asked for first are read all at once: two of
-- each, for the rows of the first may be above the share.
local function reach_of_all(classes, cpus, share)
  local reaches, fields, count = {}, {}, 0
  for index, class in ipairs(classes) do
    local reach = reach_of(class, cpus, share)
    local tops, found = cpu_rows.classes[class.name], 0
    reaches[index] = reach
    for number = classes[2] and math.min(#tops - 3, math.floor(reach.last / CHUNK)) or -1, 0, -1 do
      if tops[number + 3] <= reach.score then
        found, count = found + 1, count + 1
        fields[count] = class.name .. ':' .. number
        if found == 2 then break end
      end
    end
  end
  cpu_rows.read_chunks(fields)
  return reaches
end
