-- inline/several_written.lua: after inline/several has decided: which creations are held, and their writing, each key once,
-- in the order of include/index: the new entries, the nodes' rows, the heads, and last the old entries go.
-- Reads: call, now, now_ms, reservation_ttl_ms, rotations, several, strategy
-- Sets: nothing
several.held = {}
do
  -- The terms of creations (include/new_reservation), from ARGV: fingerprint and lifecycle, ttl_ms, request_id, caller.
  function several.terms(fingerprint, lifecycle, ttl_ms, request_id, caller)
    return {
      fingerprint = fingerprint, lifecycle = lifecycle, request_id = request_id, caller = caller, strategy = strategy,
      now = now, ttl_ms = tonumber(ttl_ms ~= '' and ttl_ms or reservation_ttl_ms),
    }
  end

  -- Notes that a creation was given a node; `number`: which one it was.
  function several.hold(terms, form, id, node_id, number)
    several.held[#several.held + 1] = {
      id = id, sandbox_id = '', request = form, terms = terms, node_id = node_id, cpu = form.cpus, memory = form.bytes,
      number = number, sequence = false, node = false, endpoint = false, fields = false, last_told = false,
    }
  end

  -- Where the rotations stand, and a sequence for each that was placed. Returns the one before the first.
  local function draw()
    local cpus, mib, placed = 0, 0, #several.held
    for _, held in ipairs(several.held) do cpus, mib = cpus + held.cpu, mib + held.request.mib end
    call('HSET', prefix .. 'rotations', 'now', now_ms, 'offset', integer(clock_offset), 'ties',
      integer(several.picker.counter), 'placed', count_placed(rotations[4], now, placed),
      'straight_cpu', integer((rotations[5] or 0) + cpus), 'straight_mib', integer((rotations[6] or 0) + mib))
    local first = call('INCR', prefix .. 'sequence')
    -- INCRBY is no command that servers had to allow before.
    if placed > 1 then call('SET', prefix .. 'sequence', integer(first + placed - 1)) end
    return first - 1
  end

  -- The list that a name has in a table of such.
  local function list_of(lists, name)
    local list = lists[name]
    if not list then
      list = {}
      lists[name] = list
    end
    return list
  end

  local function write_places()
    local rows, size, coming, leaving = {}, 0, {}, {}
    for node_id, node in pairs(several.changed) do
      local come, left = list_of(coming, node.key), list_of(leaving, node.left)
      rows[size + 1], rows[size + 2] = node_id, ordinary_nodes.written(node)
      size = size + 2
      come[#come + 1], come[#come + 2], left[#left + 1] = integer(node.score), node.member, node.left_member
    end
    for name, entries in pairs(coming) do call('ZADD', name, unpack(entries)) end
    call('HSET', prefix .. 'loads', unpack(rows))
    cpu_rows.planned = nil
    cpu_rows.flush()
    for name, members in pairs(leaving) do call('ZREM', name, unpack(members)) end
  end

  -- Writes what was planned, and of each that is held its fields and endpoint into it. What is stopped half-way has
  -- reserved nothing, or is found by the id of whoever asks again.
  function several.write()
    if several.held[1] then
      write_places()
      local sequence, known_nodes = draw(), {}
      for index, held in ipairs(several.held) do
        local known = known_nodes[held.node_id]
        if not known then
          local node = node_key(held.node_id)
          known = { key = node, endpoint = call('HGET', node, 'endpoint') or '' }
          known_nodes[held.node_id] = known
        end
        held.sequence, held.node, held.endpoint = integer(sequence + index), known.key, known.endpoint
      end
      write_reservations(several.held)
    end
    for commonest, count in pairs(several.refused) do note_refused(commonest, now, count) end
  end
end
