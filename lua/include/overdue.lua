-- @include "include/deadlines"
-- Ends what is due on the nodes that a script reads or judges, before it does. Where more is due in the whole ledger than
-- one slice, nobody waits for the rest of it: only what these nodes have of it is worked off.
do
  local IDS_AT_ONCE, IDS_MOST = 500, 5000

  -- Due reservations of one node, at most `most`, and how many of its ids were looked at.
  local function due_on(node_id, most, now)
    local found, looked = {}, 0
    while true do
      local ids = redis.call('ZRANGE', node_key(node_id, 'reservations'), looked, looked + IDS_AT_ONCE - 1)
      if not ids[1] then return found, looked end
      local due, seen = overdue.among(ids, most - #found, now)
      for _, id in ipairs(due) do found[#found + 1] = id end
      looked = looked + seen
      if #found == most then return found, looked end
    end
  end

  -- How many of these nodes, from the first on, have nothing due any more. Fewer than all, but never none: the others
  -- have too much to look at for one call. Nil: the first one has more due than one call ends, which is to be made again.
  function overdue.finish_on(node_ids, now)
    local done = #node_ids
    if overdue.is_suspended(now) then return done end
    if redis.call('ZCOUNT', key('expiry'), '-inf', integer(now)) < overdue.SLICE then
      overdue.work_off(now, overdue.SLICE)
    else
      local left, looked = overdue.SLICE, 0
      done = 0
      for _, node_id in ipairs(node_ids) do
        local due, seen = due_on(node_id, left, now)
        overdue.finish(due, now)
        left, looked = left - #due, looked + seen
        if left == 0 then break end
        done = done + 1
        if looked >= IDS_MOST then break end
      end
    end
    save_rows()
    return (done > 0 or not node_ids[1]) and done or nil
  end
end
