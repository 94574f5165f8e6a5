-- @include "include/met"
-- The row of the node that was chosen; or nil and the reply to give. Nothing is written for a node whose row is missing or
-- was made anew, or that the index shows otherwise than it is: the index is put right first.
local function meet(node_id, context)
  local row = row_of(node_id)
  local place = row and cpu_rows.place_of(row, node_id)
  rows[node_id].place = place
  if row and not row_order.rebuilt and (not context.found or stands_at(place, context.found)) then return row end
  -- @inline "include/distrust"
  return nil, distrust(node_id, row, context)
end
