-- inline/several.lua: after inline/ordinary, where one call places many ordinary creations: each as inline/straight
-- would place it after the one before. All is decided first, in `several.place`, and writes nothing: rows of the index
-- are read as they will be (include/planned_reads). What was decided is written by inline/several_written. While a node
-- is avoided, `break` leaves the block around it.
-- Reads: call, fill_to, listed, rotations
-- Sets: several
if call('EXISTS', prefix .. 'avoided_until') == 1 then break end
-- @inline "include/planned"
local several = { picker = { counter = tonumber(rotations[3] or '0') }, changed = {}, refused = {} }
do
  local TRIES, AHEAD = 16, 8
  local picker, changed, nodes, texts, forms = several.picker, several.changed, {}, {}, {}
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

  -- Finds the classes whose nodes may take a form. False: not all that there are can be judged here.
  local function find_classes(form)
    local cpus, bytes = form.cpus, form.bytes
    -- @inline "inline/ordinary_classes"
    form.classes = plain and classes[1] and classes or false
    return form.classes
  end

  -- The node whose turn it is; nil: nobody has the capacity. Second: that cannot be said here.
  local function choose(form)
    if fill_to > 0 then
      -- @inline "include/fullest"
      local found = fullest(form.classes, { cpu = form.cpus }, fill_to, picker)
      if found then return found end
    end
    for _ = 1, TRIES do
      -- The rows are the same as before where no head was changed since, as among nodes that are alike.
      if form.scanned ~= cpu_rows.changes then
        form.scanned, form.least, form.rows = cpu_rows.changes, scan(form.classes, form.cpus)
      end
      local rows = form.rows
      if not rows then return nil end
      for index = 1, #rows do rows[index].list = false end
      local found = pick_in_turn(rows, form.least, picker)
      if found then return found end
    end
    return nil, true
  end

  -- The reply that refuses a form. Nothing was placed since it was worked out: it is the same again.
  local function refuse(form)
    local known = form.refusal
    if not known or known.counter ~= picker.counter then
      local asked = { cpus = form.cpus, bytes = form.bytes, listed = listed }
      local reply, commonest = refuse_straight(form.classes, asked, function(id)
        return changed[id] and ordinary_nodes.written(changed[id]) or call('HGET', prefix .. 'loads', id) or ''
      end)
      known = { counter = picker.counter, reply = reply, commonest = commonest }
      form.refusal = known
    end
    if known.commonest then several.refused[known.commonest] = (several.refused[known.commonest] or 0) + 1 end
    return known.reply
  end

  -- The row of a node in `loads`, read together with those of the nodes whose turn is likely to come next.
  local function text_of(node_id, found, following)
    if not texts[node_id] then
      local unread = { node_id }
      for _, member in ipairs(row_plans.upcoming(found, picker.counter, math.min(AHEAD, following))) do
        local id = string.sub(member, 31)
        if not texts[id] then unread[#unread + 1] = id end
      end
      local read = call('HMGET', prefix .. 'loads', unpack(unread))
      for index = 1, #unread do texts[unread[index]] = read[index] or '' end
    end
    return texts[node_id]
  end

  -- Plans what a creation takes; `following`: how many will be asked for yet. Returns the node's id; or nil and the reply
  -- that refuses it; or nothing: inline/decide must say. `several.astray`: the index shows a node otherwise than its row
  -- does, so nothing more can be placed here.
  function several.place(form, following)
    local classes, cpus = form.classes, form.cpus
    if classes == nil then classes = find_classes(form) end
    if not classes then return end
    row_plans.following = following
    local found, astray = choose(form)
    several.astray = astray
    if not found then
      if astray then return end
      return nil, refuse(form)
    end
    local member, row, class = found.member, found.row, found.item.class
    local node_id = string.sub(member, 31)
    local node = nodes[node_id]
    if not node then
      node = ordinary_nodes.read(text_of(node_id, found, following), node_id, found, cpu_rows.classes[class.name])
      nodes[node_id] = node
    elseif node.member ~= member or node.load ~= row then
      node = nil
    end
    if not node then
      several.astray = true
      return
    end
    if not changed[node_id] then changed[node_id], node.left, node.left_member = node, found.key, member end
    local head = planned_changes.take(found.key, member, found.rank)
    if head then cpu_rows.set_head(class.name, row, head) end
    local score, new_row = ordinary_nodes.add(node, class, cpus, form.bytes), row + cpus
    node.key, node.score = cpu_rows.key_of(class.name, new_row), score
    planned_changes.bring(node.key, node.member, score)
    cpu_rows.lower_head(class.name, new_row, score)
    picker.counter = picker.counter + 1
    return node_id
  end
end
-- @inline "inline/several_written"
