-- @include "include/scores"
-- The ranking index: one sorted set per request shape in use, whose order IS the ranking
-- (score, then starting + pending, running, paused, node id). `shapes` tells of each how far it
-- followed the journal, when it was last used, and whether it is complete:
--   shapes[name] = cursor,last_use_ms,c | cursor,last_use_ms,b<last node id built>

local function note_shape(shape, now)
  redis.call('HSET', key('shapes'), shape.name,
    string.format('%d,%d,', shape.cursor, now) .. (shape.building and 'b' .. shape.building or 'c'))
end

-- Reads how far a shape has come. False: it is behind the rows, and include/mend_shapes brings it up to date.
local function open_shape(shape, base)
  shape.base = (tonumber(base or '') or 0) + journal_trimmed
  shape.total = shape.base + redis.call('LLEN', key('journal'))
  local state = redis.call('HGET', key('shapes'), shape.name)
  if state then
    local cursor, stage, position = string.match(state, '^(%d+),%d+,(%a)(.*)$')
    shape.cursor = tonumber(cursor)
    if stage == 'b' then shape.building = position end
  end
  return shape.cursor == shape.total and not shape.building
end

-- Whether the index holds a node just as its row is.
local function shows(shape, node_id)
  return redis.call('ZSCORE', shape.key, rows[node_id].member) ~= false
end

-- After this script itself changed one node: move it in place instead of waiting for the journal.
local function advance_shape(shape, settings, now, node_id, old_member, journal_length)
  local row = row_of(node_id)
  redis.call('ZREM', shape.key, old_member)
  if holds_pool(shape.variant, row.pool) then
    redis.call('ZADD', shape.key, string.format('%.17g', (score_of(row, shape, settings))), rows[node_id].member)
  end
  shape.cursor = shape.base + journal_length
  note_shape(shape, now)
end
