-- @include "include/absence"
-- Brings a node's installed roster to the one a report carries, by the difference between the two.

local install_added
do
  local function is_fresh(node_id, now, fresh)
    if fresh[node_id] == nil then
      local seen_ms = redis.call('ZSCORE', key('seen'), node_id)
      fresh[node_id] = seen_ms ~= false and now - tonumber(seen_ms) <= tonumber(redis.call('HGET', KEYS[1], 'report_ttl_ms'))
    end
    return fresh[node_id]
  end

  -- Those of newly listed ids that the node may have. The rest stay with the node that holds them: it is fresh, so
  -- it lists them, or its report is still to come that would prove them absent.
  local function admitted(node_id, sandbox_ids, records, now)
    local mine, contested, fresh = {}, {}, {}
    for _, sandbox_id in ipairs(sandbox_ids) do
      local record = records[sandbox_id]
      local held = record and record.node_id ~= node_id and record.deleted == 0 and is_fresh(record.node_id, now, fresh)
      local list = held and contested or mine
      list[#list + 1] = sandbox_id
    end
    return mine, contested
  end

  -- Takes listed sandboxes away from the nodes that held them and are silent.
  local function take_over(node_id, sandbox_ids, records)
    local held = {}
    for _, sandbox_id in ipairs(sandbox_ids) do
      local record = records[sandbox_id]
      if record and record.node_id ~= node_id then
        held[record.node_id] = held[record.node_id] or {}
        table.insert(held[record.node_id], sandbox_id)
      end
    end
    for holder, ids in pairs(held) do
      unlist(holder, ids, records)
      forget_assignments(holder, ids, true)
    end
  end

  -- Whoever holds the binding, the node counts these sandboxes in its load.
  local function settle_contested(node_id, contested, now)
    if not contested[1] then return end
    for _, id in ipairs(redis.call('HMGET', node_key(node_id, 'claims'), unpack(contested))) do
      local reservation = id and read_reservation(id)
      if reservation and is_open(reservation.state) then finish_reservation(reservation, 'settled', 'listed', now) end
    end
  end

  -- Newly listed ids: each gets its record, and the reservation that claims it is settled. Returns those that
  -- another node keeps.
  function install_added(node_id, added, generation, now)
    if not added[1] then return {} end
    local members = redis.call('SMISMEMBER', node_key(node_id, 'sandboxes'), unpack(added))
    local new = {}
    for index, sandbox_id in ipairs(added) do
      if members[index] == 0 then new[#new + 1] = sandbox_id end
    end
    if not new[1] then return {} end
    local records = records_of(new)
    local mine, contested = admitted(node_id, new, records, now)
    settle_contested(node_id, contested, now)
    if not mine[1] then return contested end
    take_over(node_id, mine, records)
    local claims = redis.call('HMGET', node_key(node_id, 'claims'), unpack(mine))
    local named = {}
    for index, sandbox_id in ipairs(mine) do named[index] = 'delete ' .. sandbox_id end
    local deletes = redis.call('ZMSCORE', node_key(node_id, 'explained'), unpack(named))
    local written = {}
    for index, sandbox_id in ipairs(mine) do
      local record = records[sandbox_id]
      if not record then
        record = { recorded_at_ms = now, mark = 'l', cpu = 0, memory = 0, paused = false, caller = '', group_key = '' }
      elseif record.node_id ~= node_id then
        record.recorded_at_ms = now
      end
      record.node_id, record.sequence, record.deleted = node_id, generation, 0
      if deletes[index] then
        record.deleted = generation
        redis.call('ZADD', node_key(node_id, 'deleted'), integer(generation), sandbox_id)
      end
      local reservation = claims[index] and read_reservation(claims[index])
      if reservation then
        record.mark, record.caller, record.group_key = 't', reservation.caller or '', reservation.group_key or ''
        tallies.give_spread(sandbox_id, record, reservation)
        size_by_reservation(node_id, sandbox_id, record, reservation, now)
      end
      count_record(record, 1)
      written[#written + 1], written[#written + 2] = sandbox_id, record_text(record)
      if reservation and is_open(reservation.state) then
        finish_reservation(reservation, 'settled', 'listed', now)
      elseif reservation then
        drop_claim(node_id, sandbox_id)
      end
    end
    -- What is stopped before it is listed is new to the next report again.
    redis.call('HSET', key('bindings'), unpack(written))
    redis.call('SADD', node_key(node_id, 'sandboxes'), unpack(mine))
    forget_assignments(node_id, mine)
    return contested
  end
end

-- Ids that the node's new roster leaves out. A process that tells its first roster may have been restarted with them:
-- what was told is awaited again.
local function install_removed(node_id, removed, generation, restarted, now)
  if not removed[1] then return end
  local members = redis.call('SMISMEMBER', node_key(node_id, 'sandboxes'), unpack(removed))
  local left = {}
  for index, sandbox_id in ipairs(removed) do
    if members[index] == 1 then left[#left + 1] = sandbox_id end
  end
  if not left[1] then return end
  local records, gone = records_of(left), {}
  for _, sandbox_id in ipairs(left) do
    local record = records[sandbox_id]
    if record and record.node_id == node_id then
      count_record(record, -1)
      if restarted and record.mark == 't' and record.deleted == 0 then
        record.recorded_at_ms = now
        redis.call('HSET', key('bindings'), sandbox_id, record_text(record))
        await(sandbox_id, record)
      else
        gone[#gone + 1] = sandbox_id
      end
    end
  end
  end_sandboxes(gone, records, now)
  -- Off the roster last: what is stopped before is left out by the next report again.
  redis.call('ZREM', node_key(node_id, 'deleted'), unpack(left))
  redis.call('SREM', node_key(node_id, 'sandboxes'), unpack(left))
end
