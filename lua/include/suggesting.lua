-- @include "include/identity"
-- Which reservation of a node a create event may be about. One call tells the events of one node, so what is open
-- there is read once.
local take_fitting, confirming_of, read_unnamed_again
do
  local UNNAMED_MAX = 1024

  -- Open reservations without a name, read once: of callers that never confirm, as { id, sequence, size }, and of
  -- confirming ones, the ids by size ('cpu:bytes'). False: more than may be read, so none of it is known.
  local open, waiting
  local function open_unnamed(node_id)
    if open ~= nil then return open end
    open = redis.call('HLEN', node_key(node_id, 'unnamed')) <= UNNAMED_MAX and { silent = {}, confirming = {} }
    local flat = open and redis.call('HGETALL', node_key(node_id, 'unnamed')) or {}
    for index = 1, #flat, 2 do
      local id = flat[index]
      local letter, sequence, cpu, memory, count = string.match(flat[index + 1], '^(%a),(%d+),(%d+),(%d+),(%d+)$')
      -- What counters took a part of no longer shows what it was.
      if count == '0' then cpu, memory = unpack(redis.call('HMGET', reservation_key(id), 'cpu_count', 'memory_bytes')) end
      local size = tostring(cpu) .. ':' .. tostring(memory)
      if string.lower(letter) == 'e' then
        open.confirming[size] = open.confirming[size] or {}
        table.insert(open.confirming[size], id)
      else
        table.insert(open.silent, { id = id, sequence = tonumber(sequence), size = size })
      end
    end
    return open
  end

  -- A sandbox id was taken from one of them since.
  function read_unnamed_again() open, waiting = nil, nil end

  -- Those of callers that never confirm by size, and those that counters settled with them: { oldest, … }.
  local function waiting_for(node_id, size)
    if waiting then return waiting[size] or {} end
    waiting = {}
    local found = open_unnamed(node_id).silent
    for _, id in ipairs(redis.call('ZRANGE', node_key(node_id, 'acknowledged'), 0, UNNAMED_MAX - 1)) do
      local cpu, memory, sequence = unpack(redis.call('HMGET', reservation_key(id), 'cpu_count', 'memory_bytes', 'sequence'))
      if sequence then
        table.insert(found, { id = id, sequence = tonumber(sequence), size = cpu .. ':' .. memory, settled = true })
      else
        redis.call('ZREM', node_key(node_id, 'acknowledged'), id)
      end
    end
    table.sort(found, function(a, b) return a.sequence < b.sequence end)
    for _, each in ipairs(found) do
      waiting[each.size] = waiting[each.size] or {}
      table.insert(waiting[each.size], each)
    end
    return waiting[size] or {}
  end

  -- The reservation, if an event may still name it.
  local function nameable(each, now)
    local reservation = read_reservation(each.id)
    local stands = reservation and not reservation.sandbox_id and reservation.lifecycle == 'heartbeat'
    if stands and (reservation.state == 'settled' or tonumber(reservation.expires_at_ms) > now) then return reservation end
  end

  -- The sizes that an event's size fits: a dimension nobody stated fits any.
  local function fitting_sizes(cpu, memory)
    cpu, memory = integer(cpu), integer(memory)
    return { [cpu .. ':' .. memory] = true, [cpu .. ':0'] = true, ['0:' .. memory] = true, ['0:0'] = true }
  end

  -- Takes the oldest unnamed reservation that fits. Reservations of different stated sizes that all fit leave it open
  -- which one this is, so the event names none.
  function take_fitting(node_id, cpu, memory, now)
    local fit, oldest
    for size in pairs(fitting_sizes(cpu, memory)) do
      local candidates = waiting_for(node_id, size)
      local head = candidates[1] and nameable(candidates[1], now)
      while candidates[1] and not head do
        table.remove(candidates, 1)
        head = candidates[1] and nameable(candidates[1], now)
      end
      if head then
        if fit then return nil end
        fit, oldest = candidates, head
      end
    end
    if not fit then return nil end
    -- A late event may mean one that counters settled: naming that one frees nothing, naming an open one might.
    for index, each in ipairs(fit) do
      local reservation = each.settled and nameable(each, now)
      if reservation then
        table.remove(fit, index)
        return reservation
      end
    end
    table.remove(fit, 1)
    return oldest
  end

  -- Open, unnamed reservations of confirming callers that an event of this size may be about: their own confirm says
  -- which. Of two of one size an event may mean either, and when the true owner ends the other would count as begun.
  -- Nil: it is not known.
  function confirming_of(node_id, cpu, memory)
    if not open_unnamed(node_id) then return nil end
    local theirs = {}
    for size in pairs(fitting_sizes(cpu, memory)) do
      for _, id in ipairs(open_unnamed(node_id).confirming[size] or {}) do theirs[#theirs + 1] = id end
    end
    return theirs
  end
end
