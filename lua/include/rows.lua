-- @include "include/index"
-- @include "include/pools"
-- @include "include/tallies"
-- Rows are read once, changed in memory and saved together; the index follows with each one that is saved.

-- `row_order.rebuilt`: a row could not be read, and was made anew.
local rows, row_order = {}, {}
-- What is still to be worked out of the rows before they are written (include/discount sets it).
local before_saving

-- The row of a discovered node, or nil.
local function row_of(node_id)
  local known = rows[node_id]
  if known then return known.row end
  local text = redis.call('HGET', key('loads'), node_id)
  local row = text and parse_row(text) or nil
  rows[node_id], row_order[#row_order + 1] = { row = row, text = text }, node_id
  if text and not row then
    -- Where it stands in the index nobody can tell any more: whoever meets it there takes it out (include/distrust).
    -- @inline "include/rebuild_row"
    row, row_order.rebuilt = rebuild_row(node_id), true
    rows[node_id].row = row
  end
  return row
end

local save_rows, save_row
do
  -- From the sets of the pool before to those of the one now; nil: no row.
  local function move_pool(node_id, before, row)
    local pool_before, pool = before and pool_letter(before), row and pool_letter(row)
    local labels_before, labels = before and before.labels, row and row.labels
    if pool_before == pool and labels_before == labels then return end
    for _, name in ipairs(node_pools.sets(pool_before, labels_before)) do redis.call('ZREM', key(name), node_id) end
    for _, name in ipairs(node_pools.sets(pool, labels)) do redis.call('ZADD', key(name), 0, node_id) end
  end

  local function move_capacity(node_id, before, row)
    if before and row and before.cpu_capacity == row.cpu_capacity and before.memory_capacity == row.memory_capacity then
      return
    end
    -- @inline "include/capacities"
    if before and not (row and row.cpu_capacity == before.cpu_capacity) then
      leave_capacity(node_id, before.cpu_capacity)
    end
    if row then enter_capacity(node_id, row) end
  end

  -- Writes one row, if it has changed; the sums follow with tallies.flush.
  function save_row(node_id)
    local known = rows[node_id]
    local row = known.row
    local text = row and format_row(row)
    if text == known.text or not (text or known.text) then return end
    local before = known.text and parse_row(known.text) or nil
    -- The row itself after sets and capacities: what is stopped before it is done again with its next change.
    move_pool(node_id, before, row)
    move_capacity(node_id, before, row)
    if known.text and not before then tallies.distrust() end
    tallies.move_row(node_id, before, row)
    local place = row and cpu_rows.place_of(row, node_id)
    cpu_rows.move(node_id, known.place or (before and cpu_rows.place_of(before, node_id)), place, text)
    if (row and row.resources) or (before and before.resources) then resources.note_free(node_id, before, row) end
    known.text, known.place = text, place
  end

  -- Writes every changed row.
  function save_rows()
    if before_saving then before_saving() end
    for _, node_id in ipairs(row_order) do save_row(node_id) end
    tallies.flush()
  end
end
