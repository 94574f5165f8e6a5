-- inline/several.lua: after inline/ordinary, where one call places many ordinary creations: each as inline/straight
-- would place it, with what is read read once, and what is written written together. A node's new entry in the index
-- is written when it is chosen; its row, the heads, and last the going of its old entry follow in `several.settle`,
-- in the order of include/index. Until then rows of the index are read without the entries that have left them.
-- Reads: call, form, listed, now, now_ms, rotations, traits
-- Sets: several
-- @inline "include/ties"
-- @inline "include/straight_refusal"
local several = { placed = 0, cpus = 0, mib = 0 }
do
  local LEFT_MOST, TRIES = 8, 16
  local picker, left, texts, unsaved, endpoints = { counter = tonumber(rotations[3] or '0') }, {}, {}, {}, {}
  local known_classes = {}

  function several.settle()
    local written = {}
    for node_id in pairs(unsaved) do written[#written + 1], written[#written + 2] = node_id, texts[node_id] end
    if written[1] then call('HSET', prefix .. 'loads', unpack(written)) end
    cpu_rows.flush()
    for name, members in pairs(left) do call('ZREM', name, unpack(members)) end
    left, unsaved = {}, {}
  end

  -- The classes whose nodes may take so much; nil: not all that there are can be judged here.
  local function classes_for(cpus, bytes)
    local name = form('%d,%d', cpus, bytes)
    if known_classes[name] == nil then
      -- @inline "inline/ordinary_classes"
      known_classes[name] = plain and classes[1] and classes or false
    end
    return known_classes[name] or nil
  end

  -- The first two of a row without those that have left it; and whether the first is chosen without asking for
  -- others.
  local function head_of(item, name, gone, least)
    local listed, head, count = call('ZRANGE', name, '0', integer(#gone + 1), 'WITHSCORES'), {}, 0
    for at = 1, #listed, 2 do
      if count < 4 and not gone[listed[at]] then
        head[count + 1], head[count + 2] = listed[at], listed[at + 1]
        count = count + 2
      end
    end
    return head, tonumber(head[2] or '') == item.score
      and (not head[3] or math.max(item.cpu, memory_pressure(item.class, tonumber(head[4]))) > least)
  end

  local function pick(rows_found, least)
    local item, leaving = rows_found[1], false
    for _, each in ipairs(rows_found) do
      each.key = prefix .. 'row:' .. each.class.name .. ':' .. integer(each.row)
      leaving = leaving or left[each.key]
    end
    if leaving and not rows_found[2] then
      local head, alone = head_of(item, item.key, left[item.key], least)
      if alone then
        item.head = head
        return { key = item.key, class = item.class.name, row = item.row, member = head[1], item = item }
      end
    end
    if leaving then several.settle() end
    return pick_in_turn(rows_found, least, picker)
  end

  -- The node whose turn it is; nil: nobody has the capacity. Second: why that cannot be said here.
  local function choose(classes, cpus)
    if traits.fill_to > 0 then
      -- @inline "include/fullest"
      several.settle()
      local found = fullest(classes, { cpu = cpus }, traits.fill_to, picker)
      if found then return found end
    end
    for _ = 1, TRIES do
      local least, rows_found = scan(classes, cpus)
      if not rows_found then return nil end
      local found = pick(rows_found, least)
      if found then return found end
    end
    return nil, 'index'
  end

  -- Holds what a creation takes. Returns the node's id; or nil and the reply that refuses it; or nothing:
  -- include/decide must say. `several.astray`: the index shows a node otherwise than its row does, so nothing more
  -- can be placed here.
  function several.place(cpus, bytes, mib)
    local classes = classes_for(cpus, bytes)
    if not classes then return end
    local found, astray = choose(classes, cpus)
    if not found then
      several.settle()
      several.astray = astray
      if astray then return end
      return nil, refuse_straight(classes, bytes, #listed / 2, now)
    end
    local node_id = string.sub(found.member, 31)
    local text = texts[node_id] or call('HGET', prefix .. 'loads', node_id) or ''
    -- @inline "inline/ordinary_move"
    several.astray = not meets
    if not meets then return end
    local new_key, gone = prefix .. 'row:' .. class.name .. ':' .. integer(new_row), left[found.key] or {}
    call('ZADD', new_key, integer(new_score), new_member)
    texts[node_id], unsaved[node_id], left[found.key] = new_text, true, gone
    local head = found.item.head or call('ZRANGE', found.key, '0', '1', 'WITHSCORES')
    if head[1] == member then cpu_rows.set_head(class.name, row, head[4] and tonumber(head[4]) or EMPTY) end
    cpu_rows.lower_head(class.name, new_row, new_score)
    gone[#gone + 1], gone[member] = member, true
    if #gone >= LEFT_MOST then several.settle() end
    picker.counter = picker.counter + 1
    several.placed, several.cpus, several.mib = several.placed + 1, several.cpus + cpus, several.mib + mib
    return node_id
  end

  function several.endpoint(node_id)
    endpoints[node_id] = endpoints[node_id] or call('HGET', node_key(node_id), 'endpoint') or ''
    return endpoints[node_id]
  end

  -- Writes where the rotations stand, and draws a sequence for each that was placed. Returns the one before the
  -- first.
  function several.draw()
    call('HSET', prefix .. 'rotations', 'now', now_ms, 'offset', integer(clock_offset), 'ties', integer(picker.counter),
      'placed', count_placed(rotations[4], now, several.placed),
      'straight_cpu', integer((rotations[5] or 0) + several.cpus),
      'straight_mib', integer((rotations[6] or 0) + several.mib))
    -- One by one: INCRBY is no command that servers had to allow before.
    local last
    for _ = 1, several.placed do last = call('INCR', prefix .. 'sequence') end
    return last - several.placed
  end
end
