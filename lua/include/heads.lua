-- @include "include/keys"
-- The least score of every row of a class, so that a search opens only rows that can win:
--   heads     hash: '<class>:<n>' → the least scores of its rows 16 n to 16 n + 15
--   classes   hash: class → least and most memory capacity of its nodes so far, then the least of each such chunk of rows
-- A row without members counts as EMPTY; a class without any is not there. Both are read once, changed in memory and
-- written by `flush`; `changes` counts how often a head was changed.
local cpu_rows
do
  -- @inline "include/packing"
  local EMPTY, CHUNK = 2 ^ 1000, 16
  local classes, chunks, dirty_classes, dirty_chunks = {}, {}, {}, {}

  -- { least memory, most memory, least of chunk 0, of chunk 1, … }; nil: nobody is in this class.
  local function class_heads(class)
    local known = classes[class]
    if known == nil then
      local text = redis.call('HGET', key('classes'), class)
      known = text and unpack_numbers(text) or false
      classes[class] = known
    end
    return known or nil
  end

  -- Reads chunks that will be asked for: '<class>:<n>', …
  local read_ahead = {}
  local function read_chunks(fields)
    local unread = {}
    for _, field in ipairs(fields) do
      if not chunks[field] and not read_ahead[field] then unread[#unread + 1] = field end
    end
    if not unread[2] then return end
    for index, text in ipairs(redis.call('HMGET', key('heads'), unpack(unread))) do
      read_ahead[unread[index]] = text
    end
  end

  -- The heads of 16 rows of one class. Those asked for last are at hand, for a node mostly moves among neighbours.
  local last_class, last_number, last_known, last_field
  local function chunk_heads(class, number)
    if number == last_number and class == last_class then return last_known, last_field end
    local field = class .. ':' .. integer(number)
    local known = chunks[field]
    if not known then
      local text = read_ahead[field] or redis.call('HGET', key('heads'), field)
      if text then
        known = unpack_numbers(text)
      else
        known = {}
        for at = 1, CHUNK do known[at] = EMPTY end
      end
      chunks[field] = known
    end
    last_class, last_number, last_known, last_field = class, number, known, field
    return known, field
  end

  -- The key of a row.
  local function key_of(class, row)
    return prefix .. 'row:' .. class .. ':' .. integer(row)
  end

  local function set_head(class, row, score)
    local number, at = math.floor(row / CHUNK), row % CHUNK + 1
    local chunk, field = chunk_heads(class, number)
    local changed = chunk[at] ~= score
    chunk[at] = score
    local tops, least = classes[class] or class_heads(class), math.min(unpack(chunk))
    if changed then dirty_chunks[field], cpu_rows.changes = least, cpu_rows.changes + 1 end
    if not tops then
      tops = { -1, -1 }
      classes[class] = tops
    end
    if not tops[number + 3] then
      for index = #tops + 1, number + 2 do tops[index] = EMPTY end
    end
    if tops[number + 3] ~= least then tops[number + 3], dirty_classes[class] = least, true end
  end

  -- A node of this memory capacity comes into a class, which may be a new one.
  local function enter_class(class, memory)
    local tops = class_heads(class)
    if not tops then
      classes[class] = { memory, memory }
      cpu_rows.listed = nil
    elseif memory >= 0 and (tops[1] < 0 or memory < tops[1] or memory > tops[2]) then
      tops[1], tops[2] = tops[1] < 0 and memory or math.min(tops[1], memory), math.max(tops[2], memory)
      dirty_classes[class] = true
    end
  end

  -- A row's head is at most this.
  local function lower_head(class, row, score)
    local number, tops = math.floor(row / CHUNK), classes[class] or class_heads(class)
    if score < chunk_heads(class, number)[row % CHUNK + 1] or score < (tops and tops[number + 3] or EMPTY) then
      set_head(class, row, score)
    end
  end

  -- What changed goes in one write each. What nobody is in any more leaves. Nothing is written while `cpu_rows.planned`
  -- says that what changed is a plan yet.
  local function flush()
    if cpu_rows.planned then return end
    local written, count = {}, 0
    for field, least in pairs(dirty_chunks) do
      if least == EMPTY then
        redis.call('HDEL', key('heads'), field)
      else
        written[count + 1], written[count + 2] = field, pack_numbers(chunks[field])
        count = count + 2
      end
      dirty_chunks[field] = nil
    end
    if count > 0 then redis.call('HSET', key('heads'), unpack(written)) end
    for class in pairs(dirty_classes) do
      local tops = classes[class]
      while tops[3] and tops[#tops] == EMPTY do tops[#tops] = nil end
      if tops[3] then
        redis.call('HSET', key('classes'), class, pack_numbers(tops))
      else
        redis.call('HDEL', key('classes'), class)
        classes[class] = false
      end
      dirty_classes[class] = nil
    end
  end

  cpu_rows = {
    changes = 0, EMPTY = EMPTY, CHUNK = CHUNK, FREE_ROWS = 32768, CLASSES_MAX = 256, classes = classes,
    unpack = unpack_numbers, class_heads = class_heads, chunk_heads = chunk_heads, enter_class = enter_class,
    set_head = set_head, lower_head = lower_head, flush = flush, key_of = key_of, read_chunks = read_chunks,
  }
end
