-- inline/changed_report.lua: what an ordinary report changes besides times and what is measured, where it says something new
-- or something has happened since the one before (inline/straight_report).
-- Reads: call, digest, fields, form, node, row_before, stable, still, stored, told
-- Sets: fields, row
do
  local most = math.max
  -- The row must be that of a ready node without anything pending.
  local label_set = string.match(row_before, '^r,%d+,%d+,%d+,%d+,%d+,%d+,%d+,0,0,0(.*)$')
  if not label_set then break end
  if string.sub(still or '', 2) ~= row_before then
    -- In an ordinary node none of the first eleven is there, and the next eight are 0.
    local rare, ordinary = call('HMGET', node, 'avoid_level', 'trouble', 'self_registered', 'explained_count',
      'explained_cpu', 'explained_memory', 'explained_any_cpu', 'explained_any_memory', 'waiting', 'last_heard_ms',
      'cordoned', 'contested', 'deleted_cpu', 'deleted_memory', 'discount_cpu', 'discount_memory', 'discount_count',
      'doubts_named', 'doubts_until_ms', 'over_limit', 'unlabelled', 'label_set'), true
    for index = 1, 11 do ordinary = ordinary and not rare[index] end
    for index = 12, 19 do ordinary = ordinary and (not rare[index] or rare[index] == '0') end
    if not ordinary or (rare[20] or '') ~= '' or rare[21] == '1'
      or label_set ~= ((rare[22] or '') ~= '' and ';' .. rare[22] or '') then
      break
    end
  end
  local account = digest == '' and {} or {
    'unexplained', 'told_cpu', 'told_memory', 'baseline_ids', 'baseline_cpu', 'baseline_memory', 'entered', 'credit',
    'shown', 'counts', 'fails', 'forks_new', 'ends_new', 'counted_new', 'counted_old',
  }
  local known = call('HMGET', node, 'labels_reported', 'create_successes', 'create_fails', 'roster_whole', 'pauses',
    unpack(account))
  local successes, fails, starting, running, paused = tonumber(ARGV[28]), tonumber(ARGV[29]), tonumber(ARGV[26]), ARGV[25],
    tonumber(ARGV[27])
  if (known[1] or '') ~= ARGV[13] or successes < tonumber(known[2]) or fails > tonumber(known[3]) then break end

  local capacities, plainly = { tonumber(ARGV[17]), tonumber(ARGV[18]) }, true
  for index = 1, 2 do
    -- As effective_capacity (include/figures), of what is known.
    local advertised, per_mille = capacities[index], stored[6 + index]
    if per_mille ~= '1000' and per_mille ~= 'unlimited' then
      local thousands = math.floor(advertised / 1000)
      local rest = math.floor((advertised - thousands * 1000) * per_mille / 1000)
      advertised = math.min(thousands * per_mille + rest, 2 ^ 53 - 1)
    end
    capacities[index], plainly = advertised, plainly and capacities[index] > 0
  end
  if not plainly then break end
  local cpu, memory = ARGV[19] + ARGV[21], ARGV[20] + ARGV[22]
  local row_now = form('r,%d,%d,%d,%d,%d,%s,%d,0,0,0', capacities[1], capacities[2], cpu, memory, starting, running, paused)
    .. label_set

  if stable ~= ARGV[16] then
    -- In one piece: a field set after another takes the script as long as the write.
    fields = {
      'stable', ARGV[16], 'status', 'ready', 'cpu_count', ARGV[17], 'memory_total_bytes', ARGV[18],
      'allocated_cpu', ARGV[19], 'allocated_memory_bytes', ARGV[20], 'paused_allocated_cpu', ARGV[21],
      'paused_allocated_memory_bytes', ARGV[22], 'sandbox_count', running, 'sandbox_starting_count', ARGV[26],
      'paused_sandbox_count', ARGV[27], 'create_successes', ARGV[28], 'create_fails', ARGV[29],
    }
    -- The second half of the digest is that of the details, and of resources, of which an ordinary report tells none.
    if string.match(stable or '', ':.*') ~= string.match(ARGV[16], ':.*') then
      fields[#fields + 1], fields[#fields + 2] = 'resources_reported', ''
      for index = 31, 30 + ARGV[15] do fields[#fields + 1] = ARGV[index] end
    end
  end
  local count, before = #fields, #fields
  local function change(name, old, new)
    if new ~= old then
      fields[count + 1], fields[count + 2] = name, form('%d', new)
      count = count + 2
    end
  end
  local pausing = known[5] == '1' or paused > 0
  change('roster_whole', (known[4] or 0) + 0, tonumber(told))
  change('pauses', (known[5] or 0) + 0, pausing and 1 or 0)
  -- As rest_on (include/install), count_entered (include/entered) and review_doubts (include/doubts) with nothing open.
  -- `settled`: whether the same report once more would change nothing.
  local settled = digest == ''
  if not settled then
    if (known[12] or '-1') == '-1' then break end
    for index = 6, 20 do known[index] = (known[index] or 0) + 0 end
    local unexplained, told_cpu, told_memory, baseline_ids, baseline_cpu, baseline_memory, entered_before, credit,
      shown_before, counts_before, fails_before, forks, ends, counted_new, counted_old = unpack(known, 6, 20)
    local counts = successes + fails
    local sure = most(entered_before, counts)
    local shown = math.min(counts + starting, most(shown_before, sure + counts - counts_before))
    local entered = pausing and sure or most(sure, math.min(shown, most(shown_before, sure + fails - fails_before)))
    local credit_now = most(-ends - forks, math.min(credit + entered - entered_before, 0))
    local old_now, new_now = counted_new, 0
    if unexplained > 0 then old_now, new_now = 0, counted_new + counted_old end
    change('unexplained', unexplained, 0)
    change('baseline_ids', baseline_ids, baseline_ids + unexplained)
    change('baseline_cpu', baseline_cpu, most(0, cpu - told_cpu))
    change('baseline_memory', baseline_memory, most(0, memory - told_memory))
    change('entered', entered_before, entered)
    change('credit', credit, credit_now)
    change('shown', shown_before, shown)
    change('counts', counts_before, counts)
    change('fails', fails_before, fails)
    change('forks_new', forks, 0)
    change('ends_new', ends, 0)
    change('counted_old', counted_old, old_now)
    change('counted_new', counted_new, new_now)
    settled = count == before
      or (starting == 0 and shown == counts and credit_now == 0 and old_now == 0 and new_now == 0)
  end
  local still_now = (settled and told or '-') .. row_now
  if still_now ~= still then fields[count + 1], fields[count + 2] = 'still', still_now end
  if row_now ~= row_before then
    row = {
      pool = 'r', cpu_capacity = capacities[1], memory_capacity = capacities[2], cpu_load = cpu, memory_load = memory,
      starting = starting, running = tonumber(running), paused = paused, pending_cpu = 0, pending_memory = 0,
      pending_count = 0, labels = label_set ~= '' and string.sub(label_set, 2) or nil, text = row_now,
    }
  end
end
