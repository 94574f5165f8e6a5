-- @include "include/keys"
-- The batch with the idempotency key of this placement: an id made from a key begins with k, and the batch's with b.
-- Nothing for any other id.
local function batch_beside(reservation_id)
  if string.byte(reservation_id) ~= 107 then return end
  return prefix .. 'batch:b' .. string.sub(reservation_id, 2)
end
