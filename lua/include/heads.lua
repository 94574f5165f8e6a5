-- @include "include/keys"
-- The least score of every row of a class, so that a search opens only rows that can win:
--   heads     hash: '<class>:<n>' → the least scores of its rows 16 n to 16 n + 15
--   classes   hash: class → least and most memory capacity of its nodes so far, then the least of each such chunk of rows
-- A row without members counts as EMPTY; a class without any is not there. Both are read once, changed in memory and
-- written by cpu_rows.flush.
local cpu_rows = { EMPTY = 2 ^ 1000, CHUNK = 16, FREE_ROWS = 32768, CLASSES_MAX = 256, classes = {}, chunks = {} }
do
  -- @inline "include/packing"
  local EMPTY, CHUNK, dirty_classes, dirty_chunks = cpu_rows.EMPTY, cpu_rows.CHUNK, {}, {}

  -- { least memory, most memory, least of chunk 0, of chunk 1, … }; nil: nobody is in this class.
  local function class_heads(class)
    local known = cpu_rows.classes[class]
    if known == nil then
      local text = redis.call('HGET', key('classes'), class)
      known = text and unpack_numbers(text) or false
      cpu_rows.classes[class] = known
    end
    return known or nil
  end

  -- The heads of 16 rows of one class.
  local function chunk_heads(class, number)
    local field = class .. ':' .. integer(number)
    local known = cpu_rows.chunks[field]
    if not known then
      local text = redis.call('HGET', key('heads'), field)
      if text then
        known = unpack_numbers(text)
      else
        known = {}
        for at = 1, CHUNK do known[at] = EMPTY end
      end
      cpu_rows.chunks[field] = known
    end
    return known, field
  end

  function cpu_rows.set_head(class, row, score)
    local number, at = math.floor(row / CHUNK), row % CHUNK + 1
    local chunk, field = chunk_heads(class, number)
    if chunk[at] ~= score then chunk[at], dirty_chunks[field] = score, true end
    local tops, least = class_heads(class), math.min(unpack(chunk))
    if not tops then
      tops = { -1, -1 }
      cpu_rows.classes[class] = tops
    end
    for index = #tops + 1, number + 2 do tops[index] = EMPTY end
    if tops[number + 3] ~= least then tops[number + 3], dirty_classes[class] = least, true end
  end

  -- A node of this memory capacity comes into a class, which may be a new one.
  function cpu_rows.enter_class(class, memory)
    local tops = class_heads(class)
    if not tops then
      cpu_rows.classes[class] = { memory, memory }
    elseif memory >= 0 and (tops[1] < 0 or memory < tops[1] or memory > tops[2]) then
      tops[1], tops[2] = tops[1] < 0 and memory or math.min(tops[1], memory), math.max(tops[2], memory)
      dirty_classes[class] = true
    end
  end

  -- A row's head is at most this.
  function cpu_rows.lower_head(class, row, score)
    local number, tops = math.floor(row / CHUNK), class_heads(class)
    if score < chunk_heads(class, number)[row % CHUNK + 1] or score < (tops and tops[number + 3] or EMPTY) then
      cpu_rows.set_head(class, row, score)
    end
  end

  -- What changed goes in one write each. What nobody is in any more leaves.
  function cpu_rows.flush()
    local written, count = {}, 0
    for field in pairs(dirty_chunks) do
      local chunk = cpu_rows.chunks[field]
      if math.min(unpack(chunk)) == EMPTY then
        redis.call('HDEL', key('heads'), field)
      else
        written[count + 1], written[count + 2] = field, pack_numbers(chunk)
        count = count + 2
      end
      dirty_chunks[field] = nil
    end
    if count > 0 then redis.call('HSET', key('heads'), unpack(written)) end
    for class in pairs(dirty_classes) do
      local tops = cpu_rows.classes[class]
      while tops[3] and tops[#tops] == EMPTY do tops[#tops] = nil end
      if tops[3] then
        redis.call('HSET', key('classes'), class, pack_numbers(tops))
      else
        redis.call('HDEL', key('classes'), class)
        cpu_rows.classes[class] = false
      end
      dirty_classes[class] = nil
    end
  end

  cpu_rows.class_heads, cpu_rows.chunk_heads, cpu_rows.unpack = class_heads, chunk_heads, unpack_numbers
end
