-- @include "include/rows"
-- The ranking index: one sorted set per request shape in use. A shape's order IS the ranking:
--   score   projected pressure for that shape, by class: known fit < unknown fit < unfit
--   member  starting + pending, running, paused (fixed width), node id
-- Scaling by powers of two keeps pressures exact within their class, so equal ones stay equal.
local UNKNOWN = 2 ^ 400
local UNFIT_CPU = 2 ^ 600
local UNFIT_MEMORY = 2 ^ 800
local UNFIT_FLOOR = 2 ^ 500
local UNFIT_MEMORY_FLOOR = 2 ^ 700
local SAFE_INTEGER_MAX = 2 ^ 53 - 1
local MIB = 1024 * 1024

local SHAPES_MAX = 128
local SHAPE_ENTRIES_MAX = 2000000
local BUILD_SLICE = 2000
local CATCH_UP_SLICE = 1000
local POOLS = {
  any = { r = true, c = true }, ready = { r = true }, degraded = { u = true },
}

-- A shape tells "not stated" (0) from a number; ordinary routing is a shape of its own.
local function shape_of(creation, cpu, memory_mb, variant)
  local name = 'ordinary'
  if creation then
    name = (cpu > 0 and integer(cpu) or '-') .. ':' .. (memory_mb > 0 and integer(memory_mb) or '-')
  end
  if variant ~= 'any' then name = name .. ':' .. variant end
  return {
    name = name, key = key('shape:' .. name), creation = creation, pools = POOLS[variant],
    cpu = creation and cpu or 0, memory = creation and memory_mb * MIB or 0,
  }
end

local function pressure_of(load, capacity)
  if capacity < 0 then return nil end
  if capacity == 0 then return load == 0 and 0 or 2 ^ 60 end
  return load / capacity
end

local function overfull(load, requested, capacity)
  if requested > 0 then return load + requested > capacity end
  return load >= capacity
end

-- The score of a row for a shape, and why the node does not fit (nil when it does).
local function score_of(row, shape, settings)
  local cpu_load = row.cpu_load + row.pending_cpu
  local memory_load = row.memory_load + row.pending_memory
  local cpu = pressure_of(cpu_load + shape.cpu, row.cpu_capacity)
  local memory = pressure_of(memory_load + shape.memory, row.memory_capacity)
  local pressure = math.max(cpu or 0, memory or 0)
  if shape.creation then
    if cpu and not settings.cpu_unlimited and overfull(cpu_load, shape.cpu, row.cpu_capacity) then
      return math.max(pressure, 2 ^ -60) * UNFIT_CPU, 'insufficient_cpu'
    end
    if (memory and not settings.memory_unlimited and overfull(memory_load, shape.memory, row.memory_capacity))
      or row.pending_memory + shape.memory > SAFE_INTEGER_MAX then
      return math.max(pressure, 2 ^ -60) * UNFIT_MEMORY, 'insufficient_memory'
    end
  end
  local unknown = row.pool == 'c' or not (cpu or memory)
    or (not cpu and row.pending_cpu + shape.cpu > 0)
    or (not memory and row.pending_memory + shape.memory > 0)
  return unknown and UNKNOWN or pressure, nil
end

local function add_rows(shape, settings, node_ids, found)
  local entries = {}
  for index, node_id in ipairs(node_ids) do
    local row = found[index] and parse_row(found[index])
    if row and shape.pools[row.pool] then
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

local function note_shape(shape, now)
  redis.call('HSET', key('shapes'), shape.name,
    integer(shape.cursor) .. ',' .. integer(now) .. ',' .. (shape.building and 'b' .. shape.building or 'c'))
end

-- Works off one slice of a shape's construction. True when it is complete.
local function build_shape(shape, settings)
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
local function catch_up(shape, settings, base)
  local entries = redis.call('LRANGE', key('journal'), shape.cursor - base, shape.cursor - base + CATCH_UP_SLICE - 1)
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

-- Brings a shape up to date with the rows. False: one slice was worked off, call again.
local function open_shape(shape, settings, now, base)
  base = (tonumber(base or '') or 0) + journal_trimmed
  local total = base + redis.call('LLEN', key('journal'))
  local state = redis.call('HGET', key('shapes'), shape.name)
  if state then
    local cursor, stage, position = string.match(state, '^(%d+),%d+,(%a)(.*)$')
    shape.cursor = tonumber(cursor)
    if stage == 'b' then shape.building = position end
  end
  if not state or shape.cursor < base or shape.cursor > total then
    if state then redis.call('UNLINK', shape.key) else evict_shapes(redis.call('ZCARD', key('nodes'))) end
    shape.cursor, shape.building = total, ''
  end
  if shape.building and not build_shape(shape, settings) then
    note_shape(shape, now)
    return false
  end
  local behind = total - shape.cursor
  if behind > 0 then catch_up(shape, settings, base) end
  if behind > CATCH_UP_SLICE then
    note_shape(shape, now)
    return false
  end
  shape.base = base
  return true
end

-- After this script itself changed one node: move it in place instead of waiting for the journal.
local function advance_shape(shape, settings, now, node_id, old_member, journal_length)
  local row = row_of(node_id)
  redis.call('ZREM', shape.key, old_member)
  if shape.pools[row.pool] then
    redis.call('ZADD', shape.key, string.format('%.17g', (score_of(row, shape, settings))), row_member(row, node_id))
  end
  shape.cursor = shape.base + journal_length
  note_shape(shape, now)
end
