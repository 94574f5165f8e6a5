-- @include "include/new_reservation"
-- New reservations that are written together, in the order of write_reservation (include/reserve): what leads to
-- them, and last each of them.
local new_reservations = {}
do
  local by_sequence, by_deadline, records = {}, {}, {}
  local lists, unnamed, claims, names = {}, {}, {}, {}

  local function append(list, first, second)
    list[#list + 1] = first
    list[#list + 1] = second
  end

  -- Notes one, and returns its fields (describe_reservation).
  function new_reservations.note(terms, held)
    local node, id = node_key(held.node_id), terms.id
    local fields, deadline, text = describe_reservation(terms, held)
    append(by_sequence, held.sequence, id)
    append(by_deadline, deadline, id)
    lists[node] = lists[node] or {}
    append(lists[node], held.sequence, id)
    if terms.sandbox_id ~= '' then
      append(names, terms.sandbox_id, id)
      claims[node] = claims[node] or {}
      append(claims[node], terms.sandbox_id, id)
    else
      unnamed[node] = unnamed[node] or {}
      append(unnamed[node], id, text)
    end
    records[#records + 1] = {
      terms = {
        id = id, fingerprint = terms.fingerprint, strategy = terms.strategy, caller = terms.caller,
        request_id = terms.request_id,
      },
      fields = fields,
    }
    return fields
  end

  function new_reservations.write()
    if not records[1] then return end
    redis.call('ZADD', key('reservations'), unpack(by_sequence))
    redis.call('ZADD', key('expiry'), unpack(by_deadline))
    for node, list in pairs(lists) do redis.call('ZADD', node .. ':reservations', unpack(list)) end
    for index = 1, #names, 2 do redis.call('SET', key('sandbox:' .. names[index]), names[index + 1]) end
    for node, list in pairs(claims) do redis.call('HSET', node .. ':claims', unpack(list)) end
    for node, list in pairs(unnamed) do redis.call('HSET', node .. ':unnamed', unpack(list)) end
    for _, record in ipairs(records) do write_record(record.terms, record.fields) end
  end
end
