-- @include "include/keys"
-- @include "include/reply"
-- What a new reservation is: of its `terms` (id, fingerprint, lifecycle, ttl_ms, request_id, caller, sandbox_id (''
-- when the node names it), strategy and now) and of what it holds (`held`: request, node_id, sequence, cpu, memory,
-- degraded, and what there may be of resources, spread and group_fields). Returns its fields, without what the
-- caller brought; its deadline; and how its node's list of those without a name has it.
local function describe_reservation(terms, held)
  local request, cpu, memory = held.request, integer(held.cpu), integer(held.memory)
  local deadline = integer(terms.now + terms.ttl_ms)
  local fields = {
    'node_id', held.node_id, 'state', 'pending', 'lifecycle', terms.lifecycle, 'cpu_count', cpu, 'memory_bytes', memory,
    'created_at_ms', integer(terms.now), 'expires_at_ms', deadline, 'sequence', held.sequence, 'revision', '1',
  }
  local count = #fields
  local function add(name, value)
    fields[count + 1], fields[count + 2] = name, value
    count = count + 2
  end
  if held.degraded == '1' then add('degraded', '1') end
  if terms.sandbox_id ~= '' then
    add('sandbox_id', terms.sandbox_id)
    add('sandbox_told', 'named')
  end
  if request.template_id ~= '' then add('template_id', request.template_id) end
  if request.origin ~= '' then add('origin', request.origin) end
  if held.resources then add('resources', held.resources) end
  if held.spread then
    add('spread', held.spread)
    add('spread_counted', '1')
  end
  for _, value in ipairs(held.group_fields or {}) do fields[#fields + 1] = value end
  local mark = terms.lifecycle == 'heartbeat' and 'h' or 'e'
  local unnamed = mark .. ',' .. held.sequence .. ',' .. cpu .. ',' .. memory .. ',1'
  return fields, deadline, unnamed
end

local function write_record(terms, fields)
  redis.call('HSET', reservation_key(terms.id), 'fingerprint', terms.fingerprint, 'strategy', terms.strategy, 'caller',
    terms.caller, 'request_id', terms.request_id, unpack(fields))
end
