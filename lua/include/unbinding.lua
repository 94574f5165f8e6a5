-- @include "include/reservations"
-- @include "include/records"
-- How sandboxes leave a node: its installed roster, those it is awaited to list, and their bindings (include/bindings).
-- Whatever takes `sandbox_ids` handles them together, at most 500 in one call: a handful of commands for a slice of a
-- roster, not a handful for each of its sandboxes.
local ENDED_MS = 600000

local unlist, forget_assignments, remember_ended, end_sandboxes, unbind, forget_listed
do
  local ENDED_MAX = 100000

  -- A node's installed roster was changed. The stored digest no longer describes it, so the node's next report is
  -- applied as a difference again.
  local function note_edit(node_id)
    local account = account_of(node_id)
    if not account then return end
    -- The load of the last report may still count what the roster does not list any more; and what comes back to it has not
    -- entered the node now, so the next whole roster is the one that counts begin with.
    account.roster_whole, account.entered = 0, -1
    weigh_again(node_id)
    redis.call('HDEL', node_key(node_id), 'roster_digest')
    redis.call('HINCRBY', node_key(node_id), 'roster_edits', 1)
  end

  -- Takes sandboxes out of a node's installed roster.
  function unlist(node_id, sandbox_ids, records)
    local listed = redis.call('SMISMEMBER', node_key(node_id, 'sandboxes'), unpack(sandbox_ids))
    local gone = {}
    for index, is_member in ipairs(listed) do
      local record = records[sandbox_ids[index]]
      if is_member == 1 then
        gone[#gone + 1] = sandbox_ids[index]
        if record and record.node_id == node_id then count_record(record, -1) end
      end
    end
    if not gone[1] then return end
    note_edit(node_id)
    redis.call('ZREM', node_key(node_id, 'deleted'), unpack(gone))
    redis.call('SREM', node_key(node_id, 'sandboxes'), unpack(gone))
  end

  -- Takes what a node waits for off, but for those that a reservation of its own claims: it goes on judging them. How many.
  local function await_unclaimed_no_more(node_id, sandbox_ids)
    local claims, left = redis.call('HMGET', node_key(node_id, 'claims'), unpack(sandbox_ids)), {}
    for index, sandbox_id in ipairs(sandbox_ids) do
      if not claims[index] then left[#left + 1] = sandbox_id end
    end
    if left[1] then redis.call('ZREM', node_key(node_id, 'assigned'), unpack(left)) end
    return #left
  end

  -- Sandboxes that are no longer awaited by a node.
  function forget_assignments(node_id, sandbox_ids, another_holds_them)
    redis.call('ZREM', key('assigned'), unpack(sandbox_ids))
    if another_holds_them then
      await_unclaimed_no_more(node_id, sandbox_ids)
    else
      redis.call('ZREM', node_key(node_id, 'assigned'), unpack(sandbox_ids))
    end
  end

  function remember_ended(sandbox_ids, now)
    local scored = {}
    for _, sandbox_id in ipairs(sandbox_ids) do scored[#scored + 1], scored[#scored + 2] = integer(now), sandbox_id end
    redis.call('ZADD', key('ended'), unpack(scored))
    redis.call('ZREMRANGEBYRANK', key('ended'), 0, -ENDED_MAX - 1)
  end

  -- Deletes the records of sandboxes that are gone; the caller takes their ids off whatever leads to them.
  function end_sandboxes(sandbox_ids, records, now)
    if not sandbox_ids[1] then return end
    tallies.forget_spread_records(sandbox_ids, records)
    redis.call('HDEL', key('bindings'), unpack(sandbox_ids))
    remember_ended(sandbox_ids, now)
  end

  -- Deletes the bindings that still point to that node, listed or not. What a reservation of the node claims is awaited as
  -- before: reports prove it gone. How many bindings ended, or are awaited no more.
  function unbind(node_id, sandbox_ids, now)
    if #sandbox_ids == 0 then return 0 end
    local records, own = records_of(sandbox_ids), {}
    for _, sandbox_id in ipairs(sandbox_ids) do
      if records[sandbox_id] and records[sandbox_id].node_id == node_id then own[#own + 1] = sandbox_id end
    end
    -- The binding before what leads to it, which leads whoever comes next to the rest.
    end_sandboxes(own, records, now)
    if own[1] then redis.call('ZREM', key('assigned'), unpack(own)) end
    unlist(node_id, sandbox_ids, records)
    return #own + await_unclaimed_no_more(node_id, sandbox_ids)
  end

  -- Takes some of a node's installed roster away, and their bindings; how many.
  function forget_listed(node_id, slice, now)
    local listed = redis.call('SRANDMEMBER', node_key(node_id, 'sandboxes'), slice)
    if not listed[1] then return 0 end
    note_edit(node_id)
    local own, records = {}, records_of(listed)
    for sandbox_id, record in pairs(records) do
      if record.node_id == node_id then
        count_record(record, -1)
        own[#own + 1] = sandbox_id
      end
    end
    end_sandboxes(own, records, now)
    redis.call('ZREM', node_key(node_id, 'deleted'), unpack(listed))
    redis.call('SREM', node_key(node_id, 'sandboxes'), unpack(listed))
    return #listed
  end
end
