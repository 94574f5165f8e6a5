-- inline/moved_row.lua: writes the row of an ordinary node whose report changed its loads or counts alone, without the
-- functions that every other change of a row needs: it stays in its class, and only its entry there moves. Order of writes:
-- that of include/index. Where the index shows the node otherwise than its row before, or the class is an odd one, nothing
-- is written.
-- Reads: call, form, node_id, row, row_before
-- Sets: moved
do
  -- @inline "include/bands"
  local cpu_capacity, memory_capacity, cpu, memory, starting, running, paused = string.match(row_before,
    '^r,(%d+),(%d+),(%d+),(%d+),(%d+),(%d+),(%d+),')
  local foot, step, last = cpu_rows.band_of(row.memory_capacity), cpu_rows.rows_of(row.cpu_capacity)
  local class = form('r,%s,%d,%d,-,', row.labels or '-', row.cpu_capacity, foot)
  if row.cpu_capacity == cpu_capacity + 0 and row.memory_capacity == memory_capacity + 0 and step == 1
    and cpu_rows.class_heads(class) then
    cpu, memory = cpu + 0, memory + 0
    local old_row, new_row = math.min(cpu, last), math.min(row.cpu_load, last)
    local old_score, score = memory - memory_capacity + foot, row.memory_load - memory_capacity + foot
    local old_key, new_key = cpu_rows.key_of(class, old_row), cpu_rows.key_of(class, new_row)
    local old_member = form('%010d%010d%010d', starting, running, paused) .. node_id
    local member = form('%010d%010d%010d', row.starting, row.running, row.paused) .. node_id
    local head = cpu_rows.chunk_heads(class, math.floor(old_row / cpu_rows.CHUNK))[old_row % cpu_rows.CHUNK + 1]
    if head <= old_score and tonumber(call('ZSCORE', old_key, old_member) or '') == old_score then
      local stays = old_key == new_key and old_member == member
      call('ZADD', new_key, form('%d', score), member)
      call('HSET', prefix .. 'loads', node_id, row.text)
      if head == old_score and not (stays and score <= head) then
        local found = call('ZRANGE', old_key, '0', '1', 'WITHSCORES')
        local least = (stays or found[1] ~= old_member) and found[2] or found[4]
        cpu_rows.set_head(class, old_row, least and tonumber(least) or cpu_rows.EMPTY)
      end
      cpu_rows.lower_head(class, new_row, score)
      cpu_rows.flush()
      if not stays then call('ZREM', old_key, old_member) end
      -- The sums of include/tallies; what stands above a capacity counts as less than closed.
      local function add(field, by)
        if by ~= 0 then call('HINCRBY', prefix .. 'tallies', field, form('%d', by)) end
      end
      add('allocated_cpu', row.cpu_load - cpu)
      add('allocated_memory', row.memory_load - memory)
      add('closed_cpu', math.min(0, cpu_capacity - row.cpu_load) - math.min(0, cpu_capacity - cpu))
      add('closed_memory', math.min(0, memory_capacity - row.memory_load) - math.min(0, memory_capacity - memory))
      moved = true
    end
  end
end
