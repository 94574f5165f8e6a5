-- @include "include/new_reservation"
-- New reservations that are written together, in the order of write_reservation (include/reserve): what leads to them, and
-- last each of them. Their nodes name the sandboxes. Each has its `terms`, the key of its `node`, and gets its `fields`
-- (describe_reservation).
local function write_reservations(all)
  local by_sequence, by_deadline, nodes = {}, {}, {}
  for index, held in ipairs(all) do
    local fields, deadline, text = describe_reservation(held.terms, held)
    local at, id, sequence, own = 2 * index, held.id, held.sequence, nodes[held.node]
    held.fields = fields
    by_sequence[at - 1], by_sequence[at] = sequence, id
    by_deadline[at - 1], by_deadline[at] = deadline, id
    if own then
      local size = own.size
      own.listed[size + 1], own.listed[size + 2], own.unnamed[size + 1], own.unnamed[size + 2] = sequence, id, id, text
      own.size = size + 2
    else
      nodes[held.node] = { listed = { sequence, id }, unnamed = { id, text }, size = 2 }
    end
  end
  redis.call('ZADD', key('reservations'), unpack(by_sequence))
  redis.call('ZADD', key('expiry'), unpack(by_deadline))
  for node, own in pairs(nodes) do
    redis.call('ZADD', node .. ':reservations', unpack(own.listed))
    redis.call('HSET', node .. ':unnamed', unpack(own.unnamed))
  end
  for _, held in ipairs(all) do write_record(held.terms, held.id, held.fields) end
end
