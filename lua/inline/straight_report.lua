-- inline/straight_report.lua: the usual report in one straight line, before most of the functions that the rest of the
-- script is made of. It ends the script when it could install the report; whatever is out of the ordinary (`break`) is
-- left, before anything was written, to the text that follows and does the same: tests/lua/test_straight_report.py holds
-- both to each other. Ordinary is: a ready, active node, no stranger and neither avoided nor cordoned, whose process has
-- reported before and lately; the installed roster, or none told; nothing open, awaited, deleted, in doubt or due; no
-- limits.
-- Reads: now, settings, stored
-- Sets: nothing
repeat
  local call, form, most = redis.call, string.format, math.max
  local node_id, sequence, digest, node = ARGV[2], ARGV[4], ARGV[6], node_key(ARGV[2])
  if settings.gated_until_ms or ARGV[11] == '1' or ARGV[12] ~= 'ready' or ARGV[14] ~= '' then break end
  local now_ms = form('%d', now)
  if call('ZCOUNT', prefix .. 'expiry', '-inf', now_ms) > 0
    or call('EXISTS', node .. ':reservations', node .. ':unnamed', node .. ':claims', node .. ':doubts', node .. ':assigned',
      node .. ':deleted') > 0 then
    break
  end
  local plain = true
  for index = #stored - #LIMITS + 1, #stored do plain = plain and not stored[index] end
  if not plain then break end
  -- In an ordinary node none of the first eleven is there, and the next eight are 0.
  local known = call('HMGET', node, 'avoid_level', 'trouble', 'self_registered', 'explained_count', 'explained_cpu',
    'explained_memory', 'explained_any_cpu', 'explained_any_memory', 'waiting', 'last_heard_ms', 'cordoned', 'contested',
    'deleted_cpu', 'deleted_memory', 'discount_cpu', 'discount_memory', 'discount_count', 'doubts_named', 'doubts_until_ms',
    'discovery', 'service_instance_id', 'sequence', 'last_seen_ms', 'create_successes', 'create_fails', 'roster_digest',
    'roster_edits', 'interval_ms', 'reports', 'stable', 'roster_whole', 'pauses', 'over_limit', 'unlabelled',
    'labels_reported', 'label_set', 'reported_at_unix_ms')
  for index = 1, 11 do plain = plain and not known[index] end
  for index = 12, 19 do plain = plain and (not known[index] or known[index] == '0') end
  if not plain or (known[33] or '') ~= '' or known[34] == '1' or (known[35] or '') ~= ARGV[13] then break end
  local discovery, instance, known_sequence, seen_ms, known_successes, known_fails, roster_digest, edits, interval_ms,
    reports, stable, roster_whole, pauses = unpack(known, 20, 32)
  local successes, fails = tonumber(ARGV[28]), tonumber(ARGV[29])
  if discovery ~= 'active' or instance ~= ARGV[3] or not seen_ms or now - seen_ms > settings.report_ttl_ms
    or (sequence ~= '' and tonumber(sequence) <= (tonumber(known_sequence or '') or -1))
    or (sequence == '' and ARGV[30] ~= '0' and tonumber(ARGV[30]) < tonumber(known[37] or '0'))
    or (digest ~= '' and digest ~= roster_digest)
    or successes < tonumber(known_successes) or fails > tonumber(known_fails) then
    break
  end

  -- Decide. The row must be that of a ready node without anything pending.
  local row_before = call('HGET', prefix .. 'loads', node_id)
  local label_set = (known[36] or '') ~= '' and ';' .. known[36] or ''
  if not row_before or string.match(row_before, '^r,%d+,%d+,%d+,%d+,%d+,%d+,%d+,0,0,0(.*)$') ~= label_set then break end
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
  local starting, running, paused = ARGV[26], ARGV[25], ARGV[27]
  local row = form('r,%d,%d,%d,%d,%s,%s,%s,0,0,0', capacities[1], capacities[2], cpu, memory, starting, running, paused)
    .. label_set
  local changes = {}
  local function change(name, before, number)
    local text = form('%d', number)
    if text ~= before then changes[#changes + 1], changes[#changes + 2] = name, text end
  end
  local pausing = pauses == '1' or tonumber(paused) > 0
  local rested
  if digest ~= '' then
    -- As rest_on (include/install), count_entered (include/entered) and review_doubts (include/doubts) with nothing open.
    local account = call('HMGET', node, 'unexplained', 'told_cpu', 'told_memory', 'baseline_ids', 'baseline_cpu',
      'baseline_memory', 'entered', 'credit', 'shown', 'counts', 'fails', 'forks_new', 'ends_new', 'counted_new',
      'counted_old',
      'baseline_generation')
    for index = 1, 16 do account[index] = account[index] or (index == 7 and '-1' or '0') end
    local unexplained, told_cpu, told_memory, ids, baseline_cpu, baseline_memory, entered_before, credit, shown_before,
      counts_before, fails_before, forks, ends, counted_new, counted_old, baseline = unpack(account)
    if entered_before == '-1' then break end
    local counts = successes + fails
    local sure, again = most(entered_before, counts), tonumber(shown_before)
    local shown = math.min(counts + starting, most(again, sure + counts - counts_before))
    local entered = pausing and sure or most(sure, math.min(shown, most(again, sure + fails - fails_before)))
    change('unexplained', unexplained, 0)
    change('baseline_ids', ids, ids + unexplained)
    change('baseline_cpu', baseline_cpu, most(0, cpu - told_cpu))
    change('baseline_memory', baseline_memory, most(0, memory - told_memory))
    change('entered', entered_before, entered)
    change('credit', credit, most(-ends - forks, math.min(credit + entered - entered_before, 0)))
    change('shown', shown_before, shown)
    change('counts', counts_before, counts)
    change('fails', fails_before, fails)
    change('forks_new', forks, 0)
    change('ends_new', ends, 0)
    change('counted_old', counted_old, unexplained == '0' and counted_new or 0)
    change('counted_new', counted_new, unexplained == '0' and 0 or counted_new + counted_old)
    rested = baseline
  end
  change('roster_whole', roster_whole or '0', digest ~= '' and 1 or 0)
  change('pauses', pauses or '0', pausing and 1 or 0)

  -- Write, in the order of the text below.
  local generation = call('INCR', prefix .. 'sequence')
  if rested then change('baseline_generation', rested, generation) end
  local looked_after = generation * 0.6180339887 % 1 < 1 / 16
  if row ~= row_before or looked_after then
    -- @inline "include/rows"
    local kept = row_of(node_id)
    if row ~= row_before then
      kept.cpu_capacity, kept.memory_capacity, kept.cpu_load, kept.memory_load = capacities[1], capacities[2], cpu, memory
      kept.starting, kept.running, kept.paused = tonumber(starting), tonumber(running), tonumber(paused)
      save_rows()
    end
    if looked_after then
      -- @inline "include/stand_again"
      stand_again(node_id)
    end
  end
  -- @inline "include/report_text"
  local generation_text, count = form('%d', generation), #changes
  local function set(name, value)
    changes[count + 1], changes[count + 2] = name, value
    count = count + 2
  end
  set('generation', generation_text)
  set('status', 'ready')
  set('last_seen_ms', now_ms)
  set('interval_ms', form('%d', report_times.learned_interval(tonumber(interval_ms or ''), now - seen_ms)))
  set('sequence', sequence == '' and known_sequence or sequence)
  set('cpu_percent', ARGV[23])
  set('memory_used_bytes', ARGV[24])
  set('reported_at_unix_ms', ARGV[30] == '0' and now_ms or ARGV[30])
  if digest ~= '' then set('reports', format_report(reports or '', generation, now)) end
  if stable ~= ARGV[16] then
    -- @inline "include/figure_names"
    set('stable', ARGV[16])
    set('over_limit', '')
    for index, name in ipairs(FIGURES) do
      if index < 7 or (index > 8 and index ~= 14) then set(name, ARGV[16 + index]) end
    end
    for index = 31, 30 + ARGV[15], 2 do set(ARGV[index], ARGV[index + 1]) end
  end
  call('HSET', node, unpack(changes))
  call('ZADD', prefix .. 'seen', now_ms, node_id)
  call('ZREM', prefix .. 'silent', node_id)
  call('ZREM', prefix .. 'forgotten', node_id)
  close_clock(now)
  -- As cpu_config_due (include/cpu_configs), for what nearly every report meets.
  local cluster_id, due = ARGV[32], '1'
  local config = call('HMGET', node .. ':cpu_config', 'listed', 'cluster_id', 'answered_revision')
  if ARGV[31] ~= 'cluster_id' or (config[1] == '1' and config[2] == cluster_id) then
    local result = call('HMGET', prefix .. 'cpu_config_result:' .. (cluster_id or ''), 'version', 'computed_version',
      'revision')
    if ARGV[31] == 'cluster_id' and result[1] == result[2] and (not result[3] or result[3] == config[3]) then
      due = '0'
    else
      -- @inline "include/cpu_configs"
      due = cpu_config_due(node_id, now) and '1' or '0'
    end
  end
  do return { 'accepted', generation_text, '0', edits or '0', due, '0', '0', { '0' } } end
until true
