-- @include "include/records"
-- Reservations that ended without a told name: their create may have entered the node, or may still, so a listed
-- id that nothing explains may be theirs.
--   node:<id>:doubts   reservation → 'kind,reports left,over at,cpu,memory'
-- kind k: the caller knew the node's answer, so two more reports show all of it. kind u: nobody knows; until its
-- create cannot begin any more, and then until two reports in a row leave no id unexplained. kind n: as u, but its
-- caller has given the sandbox a name. The reservation keeps its claim on that name, so it owns no unexplained id.
local begins_until, doubt_end, forget_doubt, drop_claim, least_credit, review_doubts, doubts_size
do
  local DOUBTS_MAX = 1024
  local DOUBT_REPORTS = 2
  local DOUBT = '^(%a),(%d+),(%d+),(%d+),(%d+)$'
  -- By node, once asked for: the sizes in doubt, as 'cpu:memory'.
  local sizes = {}

  local function doubt(reservation, kind, over_at_ms)
    local account = account_of(reservation.node_id)
    if not account then return end
    local hash = node_key(reservation.node_id, 'doubts')
    if redis.call('HLEN', hash) >= DOUBTS_MAX then
      -- More than is kept: until they are over, nothing is taken for anybody's.
      account.doubts_until_ms = math.max(account.doubts_until_ms, over_at_ms, 1)
      return
    end
    if kind == 'n' then account.doubts_named = account.doubts_named + 1 end
    redis.call('HSET', hash, reservation.reservation_id, string.format('%s,%d,%d,%d,%d', kind, DOUBT_REPORTS,
      over_at_ms, reservation.cpu_count, reservation.memory_bytes))
    if kind ~= 'n' and sizes[reservation.node_id] then
      sizes[reservation.node_id][reservation.cpu_count .. ':' .. reservation.memory_bytes] = true
    end
  end

  -- Until when the create of a reservation that ends so may still begin; nil: it may not, or its caller knows.
  -- `reservation.answered`: the caller had the node's answer.
  function begins_until(reservation, state)
    local deadline = tonumber(reservation.expires_at_ms)
    if state == 'cancelled' and not reservation.answered then return deadline end
    if state ~= 'expired' then return nil end
    -- Who never confirms has said with the deadline how long a create may take to begin.
    if reservation.lifecycle == 'heartbeat' then return deadline end
    return deadline + (tonumber(reservation.ttl_ms or '') or (deadline - tonumber(reservation.created_at_ms)))
  end

  -- What the end of a reservation says about its create.
  function doubt_end(reservation, state, reason)
    if reason == 'listed' or reason == 'node_removed' then return end
    local until_ms = begins_until(reservation, state)
    if reservation.sandbox_told == 'named' and until_ms then return doubt(reservation, 'n', until_ms) end
    local account = account_of(reservation.node_id)
    if reservation.sandbox_told == '1' or reservation.sandbox_told == 'named' then
      if account then account.ends_new = account.ends_new + 1 end
    elseif reason == 'counters' then
      if account then account.counted_new = account.counted_new + 1 end
    else
      doubt(reservation, until_ms and 'u' or 'k', until_ms or 0)
    end
  end

  function forget_doubt(reservation)
    local hash = node_key(reservation.node_id, 'doubts')
    local text = redis.call('HGET', hash, reservation.reservation_id)
    if not text then return end
    redis.call('HDEL', hash, reservation.reservation_id)
    local account = account_of(reservation.node_id)
    if account and string.sub(text, 1, 1) == 'n' then account.doubts_named = account.doubts_named - 1 end
  end

  -- When another node holds the binding, this one was asked for the sandbox on behalf of the reservation alone.
  function drop_claim(node_id, sandbox_id)
    redis.call('HDEL', node_key(node_id, 'claims'), sandbox_id)
    local record = record_of(sandbox_id)
    if not record or record.node_id ~= node_id then redis.call('ZREM', node_key(node_id, 'assigned'), sandbox_id) end
  end

  -- The create of a reservation that had a name can begin no more: the name is free, unless another one has it.
  local function forget_named_doubt(node_id, reservation_id, account)
    account.doubts_named = account.doubts_named - 1
    local sandbox_id = redis.call('HGET', reservation_key(reservation_id), 'sandbox_id')
    if sandbox_id and redis.call('HGET', node_key(node_id, 'claims'), sandbox_id) == reservation_id then
      drop_claim(node_id, sandbox_id)
    end
  end

  -- What was taken from the credit already and may not have been counted yet: what ended since the last report or in
  -- a doubt that has not begun to clear, and forks.
  function least_credit(node_id, account)
    local ends = account.doubts_until_ms > 0 and 1000000 or 0
    for _, text in pairs(as_table(redis.call('HGETALL', node_key(node_id, 'doubts')))) do
      local _, reports = string.match(text, DOUBT)
      if tonumber(reports) == DOUBT_REPORTS then ends = ends + 1 end
    end
    return -ends - account.ends_new - account.forks_new
  end

  -- A report was accepted. `clean`: it leaves no id unexplained.
  function review_doubts(node_id, account, clean, now)
    if clean then
      account.counted_old, account.counted_new = account.counted_new, 0
    else
      account.counted_old, account.counted_new = 0, account.counted_new + account.counted_old
    end
    local hash, left = node_key(node_id, 'doubts'), 0
    local flat = redis.call('HGETALL', hash)
    for index = 1, #flat, 2 do
      local kind, reports, over_at, cpu, memory = string.match(flat[index + 1], DOUBT)
      local fewer = kind == 'k' or (clean and tonumber(over_at) <= now)
      local remaining = fewer and tonumber(reports) - 1 or DOUBT_REPORTS
      if remaining == 0 then
        redis.call('HDEL', hash, flat[index])
        if kind == 'n' then forget_named_doubt(node_id, flat[index], account) end
      else
        left = left + 1
        if remaining ~= tonumber(reports) then
          redis.call('HSET', hash, flat[index], string.format('%s,%d,%s,%s,%s', kind, remaining, over_at, cpu, memory))
        end
      end
    end
    if left == 0 and account.doubts_until_ms <= now then account.doubts_until_ms = 0 end
  end

  -- Whether an end in doubt has this size, so that an event of it may be about that one.
  function doubts_size(node_id, account, cpu, memory)
    if account.doubts_until_ms > 0 then return true end
    if not sizes[node_id] then
      sizes[node_id] = {}
      for _, text in pairs(as_table(redis.call('HGETALL', node_key(node_id, 'doubts')))) do
        local kind, _, _, own_cpu, own_memory = string.match(text, DOUBT)
        if kind ~= 'n' then sizes[node_id][own_cpu .. ':' .. own_memory] = true end
      end
    end
    local known = sizes[node_id]
    return known[cpu .. ':' .. memory] or known[cpu .. ':0'] or known['0:' .. memory] or known['0:0'] or false
  end
end
