-- @include "include/keys"
-- @include "include/reply"
-- What a new reservation is: of its `terms`, which those that are asked for alike share (fingerprint, lifecycle, ttl_ms,
-- request_id, caller, strategy and now), and of what it holds (`held`: id, sandbox_id ('' when the node names it),
-- request, node_id, sequence, cpu, memory, degraded, and what there may be of resources, spread and group_fields).
local describe_reservation, told_of
do
  -- Where values stand among the fields, and how many fields and values every new reservation has.
  local CPU, MEMORY, CREATED, EXPIRES, SEQUENCE, USUAL = 8, 10, 12, 14, 16, 18
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
    fields[count + 1], fields[count + 2] = name, value
    return count + 2
  end

  -- Its fields, but for those of its terms; its deadline; and how its node's list of those without a name has it.
  function describe_reservation(terms, held)
    local request, sequence, due = held.request, held.sequence, terms.now + terms.ttl_ms
    local cpu, memory = texts[held.cpu] or text_of(held.cpu), texts[held.memory] or text_of(held.memory)
    local deadline, count = texts[due] or text_of(due), USUAL
    local fields = {
      'node_id', held.node_id, 'state', 'pending', 'lifecycle', terms.lifecycle, 'cpu_count', cpu,
      'memory_bytes', memory, 'created_at_ms', texts[terms.now] or text_of(terms.now), 'expires_at_ms', deadline,
      'sequence', sequence, 'revision', '1',
      -- Room for what follows, so that the table need not grow.
      nil, nil, nil, nil,
    }
    if held.degraded == '1' then count = add(fields, count, 'degraded', '1') end
    if held.sandbox_id ~= '' then
      count = add(fields, add(fields, count, 'sandbox_id', held.sandbox_id), 'sandbox_told', 'named')
    end
    if held.resources then count = add(fields, count, 'resources', held.resources) end
    if held.spread then
      count = add(fields, add(fields, count, 'spread', held.spread), 'spread_counted', '1')
    end
    if held.group_fields then
      for index, value in ipairs(held.group_fields) do fields[count + index] = value end
      count = count + #held.group_fields
    end
    held.last_told = count
    if request.template_id ~= '' then count = add(fields, count, 'template_id', request.template_id) end
    if request.origin ~= '' then count = add(fields, count, 'origin', request.origin) end
    local mark = terms.lifecycle == 'heartbeat' and 'h,' or 'e,'
    return fields, deadline, mark .. sequence .. ',' .. cpu .. ',' .. memory .. ',1'
  end

  -- What a reply says of it: sequence, cpu_count, memory_bytes, created_at_ms and expires_at_ms, and then by name what
  -- else its caller cannot know.
  function told_of(held)
    local fields = held.fields
    return fields[SEQUENCE], fields[CPU], fields[MEMORY], fields[CREATED], fields[EXPIRES],
      unpack(fields, USUAL + 1, held.last_told)
  end
end

local function write_record(terms, id, fields)
  redis.call('HSET', reservation_key(id), 'fingerprint', terms.fingerprint, 'strategy', terms.strategy, 'caller',
    terms.caller, 'request_id', terms.request_id, unpack(fields))
end
