-- @include "include/heads"
-- @include "include/bands"
-- @include "include/row_text"
-- @include "include/pools"
-- Where a node stands in the index. It follows from the node's row in `loads` and from nothing else.
--   class    pool letter, label set, effective CPU capacity, band of memory capacity, presence of further resources, marks;
--            '-' stands for "none" where nothing uses a field yet. Marks: b creations are held to limits as well,
--            p one capacity is not known and something is pending in it
--   row      the CPU load, in steps of one CPU; in wider steps above 16,384 CPUs. The last row also holds all loads above it
--   score    the memory load as that of a node at the foot of its band with as many bytes free
-- A node that is held to limits, or whose CPUs are counted in wider steps, also stands among the nodes of its pool by what
-- is free on it under all that binds a creation: class '<pool>,free' or '<pool>,<label set>,free', row twice the CPUs, score
-- less than 0 by twice the bytes (a limit leaves one more than twice, for it may be reached by a request that states
-- nothing, a capacity may not).
do
  local FREE_BYTES = 2 ^ 46

  -- Twice what a creation may take of one dimension.
  local function twice_free(load, capacity, binds, most)
    local free = FREE_BYTES
    if binds and capacity >= 0 then free = 2 * (capacity - load) end
    if most and most >= 0 then free = math.min(free, 2 * (most - load) + 1) end
    return free
  end

  -- The entry of a place among the free ones.
  function cpu_rows.free_entry(place)
    local class, number, score = place.family .. ',free', math.min(place.free_cpus, cpu_rows.FREE_ROWS), -place.free_bytes
    if number < 0 or score > 0 then number, score = 0, 1 end
    local name = key('row:' .. class .. ':' .. integer(number))
    return { class = class, row = number, score = score, member = place.member, key = name }
  end

  -- Where the node of a row belongs. `unknown`: the set, by counts alone, of nodes that may rank as unknown; `shadowed`: it
  -- stands among the free ones as well. Nil: a node of a pool that is never ranked.
  function cpu_rows.place_of(row, node_id)
    local pool, cpu_capacity, memory_capacity = pool_letter(row), row.cpu_capacity, row.memory_capacity
    if not node_pools.is_ranked(row.pool) then return nil end
    local cpu, memory = row.cpu_load + row.pending_cpu, row.memory_load + row.pending_memory
    local marks, unknown = row.bounded and 'b' or '', row.pool == node_pools.UNKNOWN
    if cpu_capacity < 0 or memory_capacity < 0 then
      unknown = true
      if (cpu_capacity < 0 and row.pending_cpu > 0 and memory_capacity >= 0)
        or (memory_capacity < 0 and row.pending_memory > 0 and cpu_capacity >= 0) then
        marks = marks .. 'p'
      end
    end
    local band, step, last = cpu_rows.band_of(memory_capacity), cpu_rows.rows_of(cpu_capacity)
    local presence = row.resources and resources.presence(row) or '-'
    local class = string.format('%s,%s,%d,%d,%s,%s', pool, row.labels or '-', cpu_capacity, band, presence, marks)
    local number = math.min(math.floor(cpu / step), last)
    local member, name = row_member(row, node_id), class .. ':' .. integer(number)
    local place = {
      class = class, row = number, member = member, key = key('row:' .. name),
      score = memory_capacity < 0 and 0 or memory - memory_capacity + band, memory = memory_capacity,
      family = row.labels and pool .. ',' .. row.labels or pool, shadowed = row.bounded or step > 1,
      unknown = unknown and key('unknown:' .. pool),
    }
    if row.bounded then
      local open = row.open or 0
      place.free_cpus = twice_free(cpu, cpu_capacity, open % 2 == 0, row.cpu_most)
      place.free_bytes = twice_free(memory, memory_capacity, open < 2, row.memory_most)
    else
      place.free_cpus = cpu_capacity < 0 and FREE_BYTES or 2 * (cpu_capacity - cpu)
      place.free_bytes = memory_capacity < 0 and FREE_BYTES or 2 * (memory_capacity - memory)
    end
    if (row.count_most or -1) >= 0 and row.starting + row.running + row.pending_count >= row.count_most then
      place.free_cpus = -1
    end
    return place
  end
end
