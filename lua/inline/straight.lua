-- inline/straight.lua: the usual placement in one straight line, before most of the functions that the rest of the script is
-- made of. It ends the script when it could place, or refuse for want of capacity alone; whatever is out of the ordinary
-- (`break`) is left, before anything was written, to the text that follows and decides the same: tests/lua/test_index.py
-- holds both to one oracle. Ordinary is: a strategy that ranks; both dimensions stated, and limited by capacity; a sandbox
-- that its node will name; no affinity for what it is made of; nobody excluded, avoided, silent or due; known candidates,
-- of classes without limits and of even memory.
-- Reads: nothing
-- Sets: stored
local stored = read_stored()
repeat
  local argv = ARGV
  if argv[8] ~= '' or argv[9] == 'ordinary' or argv[15] ~= '' or argv[16] ~= '' or argv[17] ~= '' or argv[18] ~= '0'
    or (argv[19] and stored[9] == '1') or (argv[13] ~= '' and tonumber(stored[14] or '')) then
    break
  end
  -- @inline "inline/ordinary"
  local cpu_text, memory_mb, id = argv[10], argv[11], argv[2]
  if argv[9] == 'template' and argv[12] ~= '' then
    local known = call('HMGET', prefix .. 'template:' .. argv[12], 'cpu_count', 'memory_mb')
    cpu_text, memory_mb = known[1] and form('%d', known[1]) or cpu_text, known[2] or memory_mb
  end
  local cpus, bytes = tonumber(cpu_text), memory_mb * 1048576
  if cpus <= 0 or bytes <= 0 then break end
  local reservation, loads = prefix .. 'reservation:' .. id, prefix .. 'loads'
  if call('EXISTS', prefix .. 'avoided_until', reservation, batch_beside(id)) > 0 then break end

  -- Choose.
  -- @inline "include/ties"
  -- @inline "include/ordinary_nodes"
  -- @inline "inline/ordinary_classes"
  if not plain or not classes[1] then break end
  local picker, found = { counter = tonumber(rotations[3] or '0') }, nil
  if fill_to > 0 then
    -- @inline "include/row_reads_more"
    -- @inline "include/fullest"
    found = fullest(classes, { cpu = cpus }, fill_to, picker)
  end
  if not found then
    local least, rows_found = scan(classes, cpus)
    if not rows_found then
      -- @inline "include/straight_refusal"
      local refusal, commonest = refuse_straight(classes, { cpus = cpus, bytes = bytes, listed = listed }, function(id)
        return call('HGET', loads, id) or ''
      end)
      if not refusal then break end
      note_refused(commonest, now)
      do return refusal end
    end
    found = pick_in_turn(rows_found, least, picker)
    if not found then break end
  end

  local node_id = string.sub(found.member, 31)
  local class, row, member = found.item.class, found.row, found.member
  local chosen = ordinary_nodes.read(call('HGET', loads, node_id) or '', node_id, found,
    cpu_rows.classes[class.name])
  if not chosen then break end
  local new_score, new_row = ordinary_nodes.add(chosen, class, cpus, bytes), row + cpus

  -- Write, in the order of include/index and of the text below.
  local node, rows_key = node_key(node_id), prefix .. 'row:' .. class.name .. ':'
  -- @inline "include/rates"
  call('HSET', prefix .. 'rotations', 'now', now_ms, 'offset', clock_offset == 0 and '0' or form('%d', clock_offset),
    'ties', form('%d', picker.counter + 1), 'placed', count_placed(rotations[4], now), 'straight_cpu',
    form('%d', (rotations[5] or 0) + cpus), 'straight_mib', form('%d', (rotations[6] or 0) + memory_mb))
  local endpoint = call('HGET', node, 'endpoint') or ''
  local sequence = form('%d', call('INCR', prefix .. 'sequence'))
  call('ZADD', rows_key .. form('%d', new_row), form('%d', new_score), chosen.member)
  call('HSET', loads, node_id, ordinary_nodes.written(chosen))
  local head = found.item.head or call('ZRANGE', found.key, '0', '1', 'WITHSCORES')
  if head[1] == member then cpu_rows.set_head(class.name, row, head[4] and tonumber(head[4]) or EMPTY) end
  cpu_rows.lower_head(class.name, new_row, new_score)
  cpu_rows.flush()
  call('ZREM', found.key, member)
  local memory_text = form('%d', bytes)
  local deadline = form('%d', now + (argv[5] ~= '' and argv[5] or reservation_ttl_ms))
  call('ZADD', prefix .. 'reservations', sequence, id)
  call('ZADD', prefix .. 'expiry', deadline, id)
  call('ZADD', node .. ':reservations', sequence, id)
  call('HSET', node .. ':unnamed', id,
    (argv[4] == 'heartbeat' and 'h,' or 'e,') .. sequence .. ',' .. cpu_text .. ',' .. memory_text .. ',1')
  local made_of = argv[13] ~= '' and { 'origin', argv[13] } or {}
  if argv[12] ~= '' then made_of[#made_of + 1], made_of[#made_of + 2] = 'template_id', argv[12] end
  call('HSET', reservation, 'fingerprint', argv[3], 'strategy', strategy, 'caller', argv[7], 'request_id', argv[6],
    'node_id', node_id, 'state', 'pending', 'lifecycle', argv[4], 'cpu_count', cpu_text, 'memory_bytes', memory_text,
    'created_at_ms', now_ms, 'expires_at_ms', deadline, 'sequence', sequence, 'revision', '1', unpack(made_of))
  do return { 'placed', node_id, endpoint, strategy, '0', sequence, cpu_text, memory_text, now_ms, deadline } end
until true
