-- @include "include/heads"
-- The heads of their rows say which rows of some classes may hold the least loaded node: a row's pressure is at least the
-- larger of what its CPUs and the memory of its first node make. Chunks of rows are opened in the order of that bound.
-- Of each class the search is told: `first` (or 0) and `final`, the rows that are looked at; `most`, the highest score;
-- `step` (or 1), CPUs of one row; pressures are (row * step + CPUs) / per_cpu and (score + per) / per_memory, above 1 by
-- `above` and `per_memory_above` where memory capacities differ within the class.
-- A class is even, and counts as if all of its nodes had the least memory capacity, where these differ by no more than that.
local EVEN = 2 ^ -12
local EMPTY, CHUNK, class_heads, chunk_heads = cpu_rows.EMPTY, cpu_rows.CHUNK, cpu_rows.class_heads, cpu_rows.chunk_heads

-- The memory pressure of a score in a class, or the least it can be.
local function memory_pressure(class, score)
  local pressure = (score + class.per) / class.per_memory
  if class.above and pressure > 1 then pressure = (score + class.above) / class.per_memory_above end
  return pressure
end

-- The least bound there is, and the rows that have it. `class.exact[row]` replaces the bound of a row that was opened; a
-- class without `exact` has none such.
local function scan(classes, cpus)
  local least, others = EMPTY, nil
  local best_class, best_row, best_score, best_cpu
  for index = 1, #classes do
    local class = classes[index]
    local name, exact, opened = class.name, class.exact, nil
    local per_cpu, step, first, final, from = class.per_cpu, class.step or 1, class.first or 0, class.final, 3
    local per, per_memory, mixed = class.per, class.per_memory, class.above
    local tops, rows_cpus, odd = cpu_rows.classes[name], CHUNK * step, exact or mixed
    local last = tops and #tops or 0
    if first > 0 then from = math.floor(first / CHUNK) + 3 end
    if final < (last - 2) * CHUNK then last = math.floor(final / CHUNK) + 3 end
    -- Above `limit` a score is too high, or its memory makes more pressure than the least there is.
    local limit = class.most
    if best_class and not odd and least * per_memory - per < limit then limit = least * per_memory - per + 1 end
    while true do
      -- The chunk with the least bound. What of the others may be no worse: a bound, and the least score of those that
      -- were passed over for having more memory in use than the best so far. Unless it is as good, they stay closed.
      local chosen, bound, next_bound, reach, next_top = nil, least, EMPTY, limit, EMPTY
      for number = from, last do
        local top = tops[number]
        if top > reach then
          if top < next_top then next_top = top end
        elseif not (opened and opened[number]) then
          local pressure, memory = ((number - 3) * rows_cpus + cpus) / per_cpu, (top + per) / per_memory
          if pressure > bound then
            if pressure < next_bound then next_bound = pressure end
            break
          end
          if mixed and memory > 1 then memory = memory_pressure(class, top) end
          if memory > pressure then
            pressure = memory
            if not odd and pressure < bound then reach = top end
          end
          if pressure < bound or (pressure == bound and not chosen) then
            if chosen then next_bound = bound end
            chosen, bound = number, pressure
          elseif pressure < next_bound then
            next_bound = pressure
          end
        end
      end
      if not chosen then break end
      local base, scores, begin, stop = (chosen - 3) * CHUNK - 1, chunk_heads(name, chosen - 3), 1, CHUNK
      if first - base > begin then begin = first - base end
      if final - base < stop then stop = final - base end
      for at = begin, stop do
        local score = scores[at]
        if score <= limit then
          local row, pressure = base + at, (score + per) / per_memory
          if odd then
            pressure = exact and exact[row] or (pressure > 1 and mixed and memory_pressure(class, score) or pressure)
          end
          if pressure <= least then
            local cpu = (row * step + cpus) / per_cpu
            if cpu > least then break end
            if cpu > pressure and not (exact and exact[row]) then
              pressure = cpu
            elseif not odd then
              limit = score
            end
            if pressure < least then
              least = pressure
              others = nil
              best_class = class
              best_row = row
              best_score = score
              best_cpu = cpu
            elseif best_class then
              others = others or {}
              others[#others + 1] = { class = class, row = row, score = score, cpu = cpu }
            end
          end
        end
      end
      if next_bound > least and next_top > limit then break end
      opened = opened or {}
      opened[chosen] = true
    end
  end
  if not best_class then return least, nil end
  -- With room for what include/ties adds, so that the table need not grow.
  local found = {
    {
      class = best_class, row = best_row, score = best_score, cpu = best_cpu, key = false, head = false, list = false,
      tied = false,
    },
  }
  for index = 1, others and #others or 0 do found[index + 1] = others[index] end
  return least, found
end
