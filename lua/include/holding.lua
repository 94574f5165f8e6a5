-- @include "include/rows"
-- What a reservation keeps from others: capacity in the row of its node, as long as it is held.
local function hold(reservation, cpu, memory, count)
  reservation.held_cpu, reservation.held_memory, reservation.held_count = cpu, memory, count
  local row = row_of(reservation.node_id)
  if not row then return end
  row.pending_cpu = row.pending_cpu + cpu
  row.pending_memory = row.pending_memory + memory
  row.pending_count = row.pending_count + count
end

local function release(reservation)
  local row = row_of(reservation.node_id)
  if row then
    row.pending_cpu = row.pending_cpu - (tonumber(reservation.held_cpu) or 0)
    row.pending_memory = row.pending_memory - (tonumber(reservation.held_memory) or 0)
    row.pending_count = row.pending_count - (tonumber(reservation.held_count) or 0)
  end
  reservation.held_cpu, reservation.held_memory, reservation.held_count = 0, 0, 0
end
