-- @include "include/keys"
-- @include "include/reply"
-- What a new reservation is: of its `terms`, which those that are asked for alike share (fingerprint, lifecycle, ttl_ms,
-- request_id, caller, strategy and now), and of what it holds (`held`: id, sandbox_id ('' when the node names it),
-- request, node_id, sequence, cpu, memory, degraded, and what there may be of resources, spread and group_fields).
local describe_reservation
do
  local texts = {}

  -- Of many reservations most figures are alike.
  local function text_of(number)
    local known = texts[number]
    if not known then
      known = integer(number)
      texts[number] = known
    end
    return known
  end

  local function add(fields, count, name, value)
    if not value then return count end
    fields[count + 1], fields[count + 2] = name, value
    return count + 2
  end

  -- Its fields, without what the caller brought; its deadline; and how its node's list of those without a name has it.
  function describe_reservation(terms, held)
    local request, cpu, memory = held.request, text_of(held.cpu), text_of(held.memory)
    local deadline, count = text_of(terms.now + terms.ttl_ms), 18
    local fields = {
      'node_id', held.node_id, 'state', 'pending', 'lifecycle', terms.lifecycle, 'cpu_count', cpu,
      'memory_bytes', memory, 'created_at_ms', text_of(terms.now), 'expires_at_ms', deadline,
      'sequence', held.sequence, 'revision', '1',
    }
    count = add(fields, count, 'degraded', held.degraded == '1' and '1')
    if held.sandbox_id ~= '' then
      count = add(fields, count, 'sandbox_id', held.sandbox_id)
      count = add(fields, count, 'sandbox_told', 'named')
    end
    count = add(fields, count, 'template_id', request.template_id ~= '' and request.template_id)
    count = add(fields, count, 'origin', request.origin ~= '' and request.origin)
    count = add(fields, count, 'resources', held.resources)
    count = add(fields, count, 'spread', held.spread)
    count = add(fields, count, 'spread_counted', held.spread and '1')
    for index, value in ipairs(held.group_fields or {}) do fields[count + index] = value end
    local mark = terms.lifecycle == 'heartbeat' and 'h,' or 'e,'
    return fields, deadline, mark .. held.sequence .. ',' .. cpu .. ',' .. memory .. ',1'
  end
end

local function write_record(terms, id, fields)
  redis.call('HSET', reservation_key(id), 'fingerprint', terms.fingerprint, 'strategy', terms.strategy, 'caller',
    terms.caller, 'request_id', terms.request_id, unpack(fields))
end
