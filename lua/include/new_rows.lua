-- @include "include/rows"
-- Rows that come and go with discovery.

-- The row of a node, a blank one for a node that just entered: nothing reported, nothing pending.
local function new_row(node_id)
  if row_of(node_id) == nil then
    rows[node_id].row = {
      pool = 'c', cpu_capacity = -1, memory_capacity = -1, cpu_load = 0, memory_load = 0,
      starting = 0, running = 0, paused = 0, pending_cpu = 0, pending_memory = 0, pending_count = 0,
    }
  end
  return rows[node_id].row
end

local function drop_row(node_id)
  row_of(node_id)
  rows[node_id].row = nil
end
