-- @include "include/new_reservation"
-- New reservations that are written together, in the order of write_reservation (include/reserve): what leads to
-- them, and last each of them. Their nodes name the sandboxes.
local new_reservations = {}
do
  local by_sequence, by_deadline, lists, unnamed, records = {}, {}, {}, {}, {}

  -- Notes one, whose node has this key; `held.terms`, and its fields from now on: `held.fields` (describe_reservation).
  function new_reservations.note(held, node)
    local id, fields, deadline, text = held.id, describe_reservation(held.terms, held)
    local at, list, names = #by_sequence, lists[node], unnamed[node]
    by_sequence[at + 1], by_sequence[at + 2] = held.sequence, id
    by_deadline[at + 1], by_deadline[at + 2] = deadline, id
    if list then
      at = #list
      list[at + 1], list[at + 2], names[at + 1], names[at + 2] = held.sequence, id, id, text
    else
      lists[node], unnamed[node] = { held.sequence, id }, { id, text }
    end
    held.fields, records[#records + 1] = fields, held
  end

  function new_reservations.write()
    if not records[1] then return end
    redis.call('ZADD', key('reservations'), unpack(by_sequence))
    redis.call('ZADD', key('expiry'), unpack(by_deadline))
    for node, list in pairs(lists) do redis.call('ZADD', node .. ':reservations', unpack(list)) end
    for node, list in pairs(unnamed) do redis.call('HSET', node .. ':unnamed', unpack(list)) end
    for _, record in ipairs(records) do write_record(record.terms, record.id, record.fields) end
  end
end
