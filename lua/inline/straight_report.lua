-- inline/straight_report.lua: the usual report in one straight line, before most of the functions that the rest of the
-- script is made of. It ends the script when it could install the report; whatever is out of the ordinary (`break`) is
-- left, before anything was written, to the text that follows and does the same: tests/lua/test_straight_report.py holds
-- both to each other. Ordinary is: a ready, active node, no stranger and neither avoided nor cordoned, whose process has
-- reported before and lately; the installed roster, or none told; nothing open, awaited, deleted, in doubt or due; no
-- limits.
-- Most reports say what the one before said. The field `still` of the node's hash remembers it: the row that the last
-- ordinary report left, after '1' (it told a roster) or '0' (it told none) where the same report once more would change
-- nothing of the node's account, else after '-'. Whoever makes a node extraordinary, or changes its account, writes the
-- field empty. While the row is that one and the report's digest the same, nothing but times and what is measured is
-- looked at.
-- Reads: now, settings, stored
-- Sets: nothing
repeat
  local call, form = redis.call, string.format
  local node_id, sequence, digest, node = ARGV[2], ARGV[4], ARGV[6], node_key(ARGV[2])
  if settings.gated_until_ms or sums_counted_to or ARGV[11] == '1' or ARGV[12] ~= 'ready' or ARGV[14] ~= '' then break end
  local now_ms = form('%d', now)
  if call('ZCOUNT', prefix .. 'expiry', '-inf', now_ms) > 0
    or call('EXISTS', node .. ':reservations', node .. ':unnamed', node .. ':claims', node .. ':doubts', node .. ':assigned',
      node .. ':deleted') > 0 then
    break
  end
  local plain = true
  for index = #stored - #LIMITS + 1, #stored do plain = plain and not stored[index] end
  if not plain then break end
  local still, stable, discovery, instance, known_sequence, seen_ms, sampled_ms, roster_digest, edits, interval_ms =
    unpack(call('HMGET', node, 'still', 'stable', 'discovery', 'service_instance_id', 'sequence', 'last_seen_ms',
      'reported_at_unix_ms', 'roster_digest', 'roster_edits', 'interval_ms'))
  if discovery ~= 'active' or instance ~= ARGV[3] or not seen_ms or now - seen_ms > settings.report_ttl_ms
    or (sequence ~= '' and tonumber(sequence) <= (tonumber(known_sequence or '') or -1))
    or (sequence == '' and ARGV[30] ~= '0' and tonumber(ARGV[30]) < tonumber(sampled_ms or '0'))
    or (digest ~= '' and digest ~= roster_digest) then
    break
  end
  local row_before, told = call('HGET', prefix .. 'loads', node_id), digest ~= '' and '1' or '0'
  if not row_before then break end
  -- What changes besides: the row, if it does, and fields of the node's hash.
  local row, fields = nil, {}
  if stable ~= ARGV[16] or still ~= told .. row_before then
    -- @inline "inline/changed_report"
  end

  -- Write, in the order of the text below.
  local generation = call('INCR', prefix .. 'sequence')
  local generation_text, looked_after = form('%d', generation), generation * 0.6180339887 % 1 < 1 / 16
  local moved = not row
  if row then
    -- @inline "inline/moved_row"
  end
  if not moved or looked_after then
    -- @inline "include/rows"
    if not moved then
      rows[node_id], row_order[1] = { row = row, text = row_before }, node_id
      save_rows()
    end
    if looked_after then
      -- @inline "include/stand_again"
      stand_again(node_id)
    end
  end
  if digest ~= '' then
    -- Nothing is awaited or deleted here, so no earlier report can prove anything.
    local count = #fields
    fields[count + 1], fields[count + 2] = 'baseline_generation', generation_text
    fields[count + 3], fields[count + 4] = 'reports', generation_text .. ':' .. now_ms
  end
  -- @inline "include/report_interval"
  call('HSET', node, 'generation', generation_text, 'last_seen_ms', now_ms,
    'interval_ms', form('%d', report_times.learned_interval(tonumber(interval_ms or ''), now - seen_ms)),
    'sequence', sequence == '' and known_sequence or sequence, 'cpu_percent', ARGV[23], 'memory_used_bytes', ARGV[24],
    'reported_at_unix_ms', ARGV[30], unpack(fields))
  -- Who falls silent leaves `seen` first, so a node that stands there stands in neither of the others, or its last report
  -- was stopped here: that is looked after now and then.
  if call('ZADD', prefix .. 'seen', now_ms, node_id) == 1 or looked_after then
    call('ZREM', prefix .. 'silent', node_id)
    call('ZREM', prefix .. 'forgotten', node_id)
  end
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
