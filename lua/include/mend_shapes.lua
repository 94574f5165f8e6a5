-- Included inside include/decide: what an index needs when it is not current.
local SHAPES_MAX = 128
local SHAPE_ENTRIES_MAX = 2000000
local BUILD_SLICE = 2000
local CATCH_UP_SLICE = 1000

local function add_rows(shape, settings, node_ids, found)
  local entries = {}
  for index, node_id in ipairs(node_ids) do
    local row = found[index] and parse_row(found[index])
    if row and holds_pool(shape.variant, row.pool) then
      entries[#entries + 1] = string.format('%.17g', (score_of(row, shape, settings)))
      entries[#entries + 1] = row_member(row, node_id)
    end
  end
  for first = 1, #entries, 1000 do
    redis.call('ZADD', shape.key, unpack(entries, first, math.min(first + 999, #entries)))
  end
end

local function add_nodes(shape, settings, node_ids)
  for first = 1, #node_ids, 1000 do
    local chunk = {}
    for index = first, math.min(first + 999, #node_ids) do chunk[#chunk + 1] = node_ids[index] end
    add_rows(shape, settings, chunk, redis.call('HMGET', key('loads'), unpack(chunk)))
  end
end

-- Makes room for one more shape: the least recently used ones go.
local function evict_shapes(nodes)
  local allowed = math.max(1, math.min(SHAPES_MAX, math.floor(SHAPE_ENTRIES_MAX / math.max(nodes, 1))))
  local known = redis.call('HGETALL', key('shapes'))
  local by_use = {}
  for index = 1, #known, 2 do
    local used = string.match(known[index + 1], '^%d+,(%d+),')
    by_use[#by_use + 1] = { name = known[index], used = tonumber(used) }
  end
  table.sort(by_use, function(a, b) return a.used < b.used or (a.used == b.used and a.name < b.name) end)
  for index = 1, #by_use - allowed + 1 do
    redis.call('UNLINK', key('shape:' .. by_use[index].name))
    redis.call('HDEL', key('shapes'), by_use[index].name)
  end
end

-- Works off one slice of a shape's construction. True when it is complete.
local function build(shape, settings)
  local from = shape.building == '' and '-' or '(' .. shape.building
  local node_ids = redis.call('ZRANGEBYLEX', key('nodes'), from, '+', 'LIMIT', 0, BUILD_SLICE)
  add_nodes(shape, settings, node_ids)
  if #node_ids < BUILD_SLICE then
    shape.building = nil
    return true
  end
  shape.building = node_ids[#node_ids]
  return false
end

-- The first journal entry about a node after the cursor names the member this shape still holds.
local function catch_up(shape, settings)
  local from = shape.cursor - shape.base
  local entries = redis.call('LRANGE', key('journal'), from, from + CATCH_UP_SLICE - 1)
  local node_ids, outdated, met = {}, {}, {}
  for _, member in ipairs(entries) do
    local node_id = string.sub(member, 31)
    if not met[node_id] then
      met[node_id] = true
      node_ids[#node_ids + 1] = node_id
      outdated[#outdated + 1] = member
    end
  end
  if #outdated > 0 then
    redis.call('ZREM', shape.key, unpack(outdated))
    add_nodes(shape, settings, node_ids)
  end
  shape.cursor = shape.cursor + #entries
end

-- Builds a slice, or follows a slice of the journal. False: there is more to do, call again.
local function mend(shape, settings, now)
  local total = shape.total
  if not shape.cursor or shape.cursor < shape.base or shape.cursor > total then
    if shape.cursor then redis.call('UNLINK', shape.key) else evict_shapes(redis.call('ZCARD', key('nodes'))) end
    shape.cursor, shape.building = total, ''
  end
  local complete = not shape.building or build(shape, settings)
  if complete then catch_up(shape, settings) end
  -- Noted whatever becomes of the request: a refusal must not leave the shape ahead of its cursor.
  note_shape(shape, now)
  return complete and shape.cursor == total
end
