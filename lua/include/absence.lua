-- @include "include/bindings"
-- @include "include/report_times"
-- What a report proves of sandboxes that it does not list, although somebody told of them.
-- One report proves nothing: it may have been sampled before the sandbox began. Two do, received after the
-- telling and at least half the node's report interval apart; or one that was sampled after an answer given
-- after the telling (`acknowledged_generation`).
local drop_absent, undo_deletes, judge_absence
do
  local ABSENT_SLICE = 50

  -- What was told before this (a sequence) and the report of `generation` does not list is gone. Nil: nothing is.
  local function proven_before(reports, interval_ms, generation, now)
    local proven, received_ms = nil, now
    -- Its roster may have been applied in slices since it was received.
    for _, report in ipairs(reports) do
      if report.generation == generation then received_ms = report.at_ms end
    end
    for _, report in ipairs(reports) do
      local apart = 2 * (received_ms - report.at_ms) >= (interval_ms or report_times.interval_least_ms)
      if report.generation < generation and apart then proven = report.generation end
    end
    return proven
  end

  -- The reservation of a sandbox that is gone has ended: a confirm, RecordAssignment or a create event told of it. A
  -- confirming caller's is not judged by a name that only an event gave it.
  local function end_absent(node_id, sandbox_id, told_before_ms, now)
    local id = redis.call('HGET', node_key(node_id, 'claims'), sandbox_id)
    local reservation = id and read_reservation(id)
    if not reservation then return true end
    local begun = reservation.sandbox_told ~= '0' or reservation.lifecycle == 'heartbeat'
    if not is_open(reservation.state) then
      -- Its create might still have begun, and was told to have: now it is over.
      drop_claim(node_id, sandbox_id)
      return true
    end
    if reservation.state == 'pending' and not begun then return false end
    if tonumber(reservation.confirmed_at_ms or '0') > told_before_ms then return false end
    finish_reservation(reservation, 'settled', 'gone', now)
    return true
  end

  -- Ends what is proven absent, a slice of it; whether there may be more. `told_before`: recorded at or before
  -- this time, whatever the sequence.
  function drop_absent(node_id, proven, told_before_ms, now)
    local awaited = redis.call('ZRANGEBYSCORE', node_key(node_id, 'assigned'), '-inf', '(' .. integer(proven),
      'LIMIT', 0, ABSENT_SLICE)
    if not awaited[1] then return false end
    local records, gone, spared = records_of(awaited), {}, 0
    for _, sandbox_id in ipairs(awaited) do
      local record = records[sandbox_id]
      -- Of what another node holds by now, only the reservation still tells since when it is awaited here.
      local old_enough = not record or record.node_id ~= node_id or record.recorded_at_ms <= told_before_ms
      if old_enough and end_absent(node_id, sandbox_id, told_before_ms, now) then
        gone[#gone + 1] = sandbox_id
      else
        spared = spared + 1
      end
    end
    unbind(node_id, gone, now)
    return #awaited == ABSENT_SLICE and spared < ABSENT_SLICE
  end

  -- Ids that delete events named and that a report certainly sampled later still lists: they live.
  function undo_deletes(node_id, proven)
    local alive = redis.call('ZRANGEBYSCORE', node_key(node_id, 'deleted'), '-inf', '(' .. integer(proven),
      'LIMIT', 0, ABSENT_SLICE)
    if not alive[1] then return end
    for sandbox_id, record in pairs(records_of(alive)) do
      if record.node_id == node_id then change_record(sandbox_id, record, { deleted = 0 }) end
    end
    redis.call('ZREM', node_key(node_id, 'deleted'), unpack(alive))
  end

  -- Ends what the reports before this one and this one together prove absent, a slice of it; whether there may be
  -- more. `known`: reports before this one, interval_ms, sequence ('' or nil: a report may be a copy).
  function judge_absence(node_id, known, settings, generation, now)
    local proven = proven_before(report_times.parse(known.reports), tonumber(known.interval_ms or ''), generation, now)
    local told_before_ms = now
    if not known.sequence or known.sequence == '' then told_before_ms = now - settings.binding_grace_ms end
    if settings.binding_grace_ms == 0 then proven, told_before_ms = generation, now end
    undo_deletes(node_id, proven or 0)
    return drop_absent(node_id, proven or 0, told_before_ms, now)
  end
end
