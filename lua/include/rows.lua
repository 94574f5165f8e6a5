-- @include "include/keys"
-- @include "include/reply"
-- A node's row in `loads` is all that ranking reads of it, in one line:
--   pool,cpu_capacity,memory_capacity,cpu_load,memory_load,starting,running,paused,
--   pending_cpu,pending_memory,pending_count[,cpu_most,memory_most,count_most]
-- Capacities are effective ones (-1: not known), loads are active + paused, memory is bytes.
-- pool: r ready, c connecting, u unhealthy, x unhealthy and over a limit, o over a limit,
--       l lingering, w waiting (known before the ledger was lost, not heard of since);
--       in capitals: the node refuses what it is given, and is avoided for a while (include/avoidance).
-- The last three stand where node_resource_limit bounds what a creation may bring the node to (include/limits):
-- CPU load and memory load with what is pending, and sandboxes starting, running and pending; -1: no bound.
--
-- Rows are read once, changed in memory and saved together. Saving a changed row pushes the
-- member it had in every shape to `journal`; that is how shapes learn of it.
local ROW = '^(%a),(%-?%d+),(%-?%d+),(%d+),(%d+),(%d+),(%d+),(%d+),(%d+),(%d+),(%d+)(.*)$'
local JOURNAL_CAP = 65536
-- `row_order.rebuilt`: a row could not be read, and indexes went with it.
local rows, row_order, journal_trimmed = {}, {}, 0
-- What is still to be worked out of the rows before they are written (include/discount sets it).
local before_saving

local function parse_row(text)
  local pool, cpu_capacity, memory_capacity, cpu_load, memory_load, starting, running, paused,
    pending_cpu, pending_memory, pending_count, bounds = string.match(text, ROW)
  if not pool then return nil end
  local row = {
    pool = string.lower(pool), avoided = pool < 'a' or nil,
    cpu_capacity = tonumber(cpu_capacity), memory_capacity = tonumber(memory_capacity),
    cpu_load = tonumber(cpu_load), memory_load = tonumber(memory_load),
    starting = tonumber(starting), running = tonumber(running), paused = tonumber(paused),
    pending_cpu = tonumber(pending_cpu), pending_memory = tonumber(pending_memory),
    pending_count = tonumber(pending_count),
  }
  if bounds ~= '' then
    local cpu_most, memory_most, count_most = string.match(bounds, '^,(%-?%d+),(%-?%d+),(%-?%d+)$')
    if not cpu_most then return nil end
    row.bounded, row.cpu_most, row.memory_most, row.count_most =
      true, tonumber(cpu_most), tonumber(memory_most), tonumber(count_most)
  end
  return row
end

-- The pool as rows and sets have it.
local function pool_letter(row)
  return row.avoided and string.upper(row.pool) or row.pool
end

local function format_row(row)
  local text = string.format('%s,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d', pool_letter(row),
    row.cpu_capacity, row.memory_capacity, row.cpu_load, row.memory_load, row.starting,
    row.running, row.paused, row.pending_cpu, row.pending_memory, row.pending_count)
  if not row.bounded then return text end
  return text .. string.format(',%d,%d,%d', row.cpu_most, row.memory_most, row.count_most)
end

-- Fixed width, so that the order of bytes is the order of (starting, running, paused, id).
local function row_member(row, node_id)
  return string.format('%010d%010d%010d', row.starting + row.pending_count,
    row.running, row.paused) .. node_id
end

-- The row of a discovered node, or nil. `rows[id].member` is what shapes hold of it until it is saved.
local function row_of(node_id)
  local known = rows[node_id]
  if known then return known.row end
  local text = redis.call('HGET', key('loads'), node_id)
  local row = text and parse_row(text) or nil
  rows[node_id] = {
    row = row, text = text, pool = row and pool_letter(row), member = row and row_member(row, node_id),
    cpu_capacity = row and row.cpu_capacity, memory_capacity = row and row.memory_capacity,
  }
  row_order[#row_order + 1] = node_id
  if text and not row then
    -- What it had in the indexes is lost with it, so they go as well: whoever has opened one asks again.
    -- @include "include/rebuild_row"
    row, row_order.rebuilt = rebuild_row(node_id), true
    rows[node_id].row = row
  end
  return row
end

local save_rows
do
  local function move_pool(node_id, from, to)
    -- @include "include/pool_sets"
    for _, name in ipairs(sets_of(from)) do redis.call('ZREM', key(name), node_id) end
    for _, name in ipairs(sets_of(to)) do redis.call('ZADD', key(name), 0, node_id) end
  end

  local function trim_journal(length)
    local surplus = length - JOURNAL_CAP
    redis.call('LTRIM', key('journal'), surplus, -1)
    redis.call('HINCRBY', key('rotations'), 'journal_base', surplus)
    journal_trimmed = journal_trimmed + surplus
  end

  local function move_capacity(node_id, known, row)
    -- @include "include/capacities"
    if known.cpu_capacity and not (row and row.cpu_capacity == known.cpu_capacity) then
      leave_capacity(node_id, known.cpu_capacity)
    end
    if row then enter_capacity(node_id, row) end
    known.cpu_capacity, known.memory_capacity = row and row.cpu_capacity, row and row.memory_capacity
  end

  -- Writes every changed row. Returns the journal's length before any trimming when something was
  -- pushed, else nil.
  function save_rows()
    local length
    if before_saving then before_saving() end
    for _, node_id in ipairs(row_order) do
      local known = rows[node_id]
      local row = known.row
      local text = row and format_row(row)
      if text ~= known.text and (text or known.text) then
        -- The row itself last: what is stopped before it is done again with the next change of the row.
        length = redis.call('RPUSH', key('journal'), known.member or (string.rep('0', 30) .. node_id))
        local pool = row and pool_letter(row)
        if pool ~= known.pool then move_pool(node_id, known.pool, pool) end
        if not row or row.cpu_capacity ~= known.cpu_capacity or row.memory_capacity ~= known.memory_capacity then
          move_capacity(node_id, known, row)
        end
        if text then
          redis.call('HSET', key('loads'), node_id, text)
        else
          redis.call('HDEL', key('loads'), node_id)
        end
        known.text, known.pool, known.member = text, pool, row and row_member(row, node_id)
      end
    end
    if length and length > JOURNAL_CAP + 1024 then trim_journal(length) end
    return length
  end
end
