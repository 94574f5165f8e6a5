-- inline/several.lua: after inline/ordinary, where one call places many ordinary creations: each as inline/straight
-- would place it after the one before. All is decided first, in `several.place`, and writes nothing: rows of the index
-- are read as they will be (include/row_plans). `several.write` writes it together, each key once, in the order of
-- include/index: the new entries, the nodes' rows, the heads, and last the old entries go.
-- Reads: call, fill_to, listed, now, now_ms, reservation_ttl_ms, rotations, strategy
-- Sets: several
-- @inline "include/planned"
local several = { placed = 0, cpus = 0, mib = 0, held = {}, refused = {} }
do
  local TRIES, AHEAD = 16, 8
  local picker, nodes, texts, changed = { counter = tonumber(rotations[3] or '0') }, {}, {}, {}
  local forms = {}
  cpu_rows.planned = true

  -- What a creation asks for: its size, and what is known of it meanwhile. Nil: a dimension is not stated, so that it is
  -- none of the ordinary ones.
  function several.form(kind, cpus, mib, template_id, origin)
    local name = table.concat({ kind, cpus, mib, template_id, origin }, '\n')
    local form = forms[name]
    if form == nil then
      if kind == 'template' and template_id ~= '' then
        local told = call('HMGET', prefix .. 'template:' .. template_id, 'cpu_count', 'memory_mb')
        cpus, mib = told[1] or cpus, told[2] or mib
      end
      cpus, mib = tonumber(cpus), tonumber(mib)
      form = cpus > 0 and mib > 0
        and { cpus = cpus, mib = mib, bytes = mib * 1048576, template_id = template_id, origin = origin }
      forms[name] = form
    end
    return form or nil
  end

  -- The classes whose nodes may take so much; nil: not all that there are can be judged here.
  local function classes_for(form)
    if form.classes == nil then
      local cpus, bytes = form.cpus, form.bytes
      -- @inline "inline/ordinary_classes"
      form.classes = plain and classes[1] and classes or false
    end
    return form.classes or nil
  end

  -- The node whose turn it is; nil: nobody has the capacity. Second: that cannot be said here.
  local function choose(classes, cpus)
    if fill_to > 0 then
      -- @inline "include/fullest"
      local found = fullest(classes, { cpu = cpus }, fill_to, picker)
      if found then return found end
    end
    for _ = 1, TRIES do
      local least, rows_found = scan(classes, cpus)
      if not rows_found then return nil end
      local found = pick_in_turn(rows_found, least, picker)
      if found then return found end
    end
    return nil, true
  end

  -- The reply that refuses a form. Nothing was placed since it was worked out: it is the same again.
  local function refuse(form)
    local known = form.refusal
    if not known or known.placed ~= several.placed then
      local asked = { cpus = form.cpus, bytes = form.bytes, listed = listed }
      local reply, commonest = refuse_straight(form.classes, asked, function(id)
        return changed[id] and ordinary_nodes.written(changed[id]) or call('HGET', prefix .. 'loads', id) or ''
      end)
      known = { placed = several.placed, reply = reply, commonest = commonest }
      form.refusal = known
    end
    if known.commonest then several.refused[known.commonest] = (several.refused[known.commonest] or 0) + 1 end
    return known.reply
  end

  -- An ordinary node that was found, or nil: the index shows it otherwise than its row does. Those that stand behind it in
  -- the index are likely to be asked for next, when so many creations follow.
  local function node_of(node_id, found, following)
    local known = nodes[node_id]
    if known then return known.member == found.member and known.load == found.row and known or nil end
    if not texts[node_id] then
      local near, unread = row_plans.neighbours(found.key, found.member, math.min(AHEAD, following + 1)), {}
      for _, member in ipairs(near) do
        local id = string.sub(member, 31)
        if not texts[id] then unread[#unread + 1] = id end
      end
      local read = call('HMGET', prefix .. 'loads', unpack(unread))
      for index, id in ipairs(unread) do texts[id] = read[index] or '' end
    end
    nodes[node_id] = ordinary_nodes.read(texts[node_id], node_id, found, cpu_rows.classes[found.item.class.name])
    return nodes[node_id]
  end

  -- Plans what a creation takes. Returns the node's id; or nil and the reply that refuses it; or nothing:
  -- inline/decide must say. `several.astray`: the index shows a node otherwise than its row does, so nothing more
  -- can be placed here.
  function several.place(form, following)
    if not classes_for(form) then return end
    local cpus, bytes, found = form.cpus, form.bytes, nil
    found, several.astray = choose(form.classes, cpus)
    if not found then
      if several.astray then return end
      return nil, refuse(form)
    end
    local node_id, member, row, class = string.sub(found.member, 31), found.member, found.row, found.item.class
    local node = node_of(node_id, found, following)
    several.astray = not node
    if not node then return end
    local head = found.item.head or row_reads.range(found.key, '0', '1')
    if head[1] == member then cpu_rows.set_head(class.name, row, head[4] and tonumber(head[4]) or EMPTY) end
    row_plans.take(found.key, member)
    local new_score, new_row = ordinary_nodes.add(node, class, cpus, bytes), row + cpus
    row_plans.bring(cpu_rows.key_of(class.name, new_row), node.member, new_score)
    cpu_rows.lower_head(class.name, new_row, new_score)
    changed[node_id] = node
    picker.counter = picker.counter + 1
    several.placed, several.cpus, several.mib = several.placed + 1, several.cpus + cpus, several.mib + form.mib
    return node_id
  end

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
      degraded = '0', number = number, sequence = false, endpoint = false, fields = false,
    }
  end

  -- Where the rotations stand, and a sequence for each that was placed. Returns the one before the first.
  local function draw()
    call('HSET', prefix .. 'rotations', 'now', now_ms, 'offset', integer(clock_offset), 'ties', integer(picker.counter),
      'placed', count_placed(rotations[4], now, several.placed),
      'straight_cpu', integer((rotations[5] or 0) + several.cpus),
      'straight_mib', integer((rotations[6] or 0) + several.mib))
    local first = call('INCR', prefix .. 'sequence')
    -- INCRBY is no command that servers had to allow before.
    if several.placed > 1 then call('SET', prefix .. 'sequence', integer(first + several.placed - 1)) end
    return first - 1
  end

  local function write_places()
    local rows = {}
    for node_id, node in pairs(changed) do
      rows[#rows + 1], rows[#rows + 2] = node_id, ordinary_nodes.written(node)
    end
    row_plans.write_coming()
    call('HSET', prefix .. 'loads', unpack(rows))
    cpu_rows.planned = nil
    cpu_rows.flush()
    row_plans.write_leaving()
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
        held.sequence, held.endpoint = integer(sequence + index), known.endpoint
        new_reservations.note(held, known.key)
      end
      new_reservations.write()
    end
    for commonest, count in pairs(several.refused) do note_refused(commonest, now, count) end
  end
end
