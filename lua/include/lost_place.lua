-- Stands inside include/rebuild_row: takes a node out of the index although nobody can tell where it stood. Looks at up to
-- 2,000 entries; beyond that it leaves with whoever meets it there (include/distrust), or with a repair.
local ENTRIES_MOST = 2000
local EMPTY, CHUNK, class_heads, chunk_heads = cpu_rows.EMPTY, cpu_rows.CHUNK, cpu_rows.class_heads, cpu_rows.chunk_heads

local function forget_place(node_id)
  local looked = 0
  local function forget_in(name)
    for _, member in ipairs(redis.call('ZRANGE', name, 0, ENTRIES_MOST)) do
      looked = looked + 1
      if string.sub(member, 31) == node_id then redis.call('ZREM', name, member) end
    end
  end
  for pool in string.gmatch(node_pools.RANKED .. string.upper(node_pools.RANKED), '.') do
    forget_in(key('unknown:' .. pool))
  end
  for _, class in ipairs(redis.call('HKEYS', key('classes'))) do
    for number = 0, #(class_heads(class) or {}) - 3 do
      local scores = chunk_heads(class, number)
      for at = 1, CHUNK do
        local row = number * CHUNK + at - 1
        if scores[at] < EMPTY and looked < ENTRIES_MOST then
          local name = class .. ':' .. integer(row)
          forget_in(key('row:' .. name))
          local least = redis.call('ZRANGE', key('row:' .. name), '0', '0', 'WITHSCORES')[2]
          cpu_rows.set_head(class, row, least and tonumber(least) or EMPTY)
        end
      end
    end
  end
  cpu_rows.flush()
end
