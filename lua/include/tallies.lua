-- @include "include/keys"
-- @include "include/reply"
-- @include "include/pools"
-- @include "include/stored_settings"
-- Sums over the whole ledger that are kept with each change, so that nobody has to walk it for a summary:
--   tallies   hash: capacity_, allocated_, reserved_ and closed_ of `cpu`, `memory` and `further:<resource>`, over the nodes
--             that take creations and say what they have (pools r, c, o); free is the first less the others. `closed` is
--             what limits leave unused, less what a node holds beyond its capacity. state_<state>: reservations that are
--             no longer pending.
--             oldest_sequence: no reservation before it is pending.
--             counted: tallies.WHOLE while all this is known to be whole (else read_summary has it counted anew)
-- They are counted anew in slices, and how far is kept among the settings, which every script reads: `sums_counted_to` is
-- 'nodes <id>', and after all nodes 'reservations <sequence>'. A change of what comes after it is left to the count.
-- The straight text of a placement keeps what it reserves in `rotations`, whose write it makes anyway: straight_cpu and
-- straight_mib, until a sweep moves them here.
-- WHOLE: another number once there are more sums.
local tallies = { WHOLE = '2' }
do
  local changes = {}

  -- Of one call several rows may change, and each by as much as is exact: what is known of a field goes to the sums before
  -- more than that comes together.
  local EXACT = 2 ^ 53

  local function add(field, by)
    if by == 0 then return end
    local sum = (changes[field] or 0) + by
    if sum > EXACT or sum < -EXACT then
      redis.call('HINCRBY', key('tallies'), field, integer(changes[field]))
      sum = by
    end
    changes[field] = sum
  end

  -- What one dimension of a row has: its capacity, load, what is reserved of it, and what is closed.
  local function parts_of(closed, capacity, load, pending, most)
    if closed == nil or capacity < 0 then return 0, 0, 0, 0 end
    local left = capacity - load - pending
    local free = (most and most >= 0) and math.min(left, most - load - pending) or left
    if closed or free < 0 then free = 0 end
    return capacity, load, pending, left - free
  end

  local function add_further(closed, row, sign)
    for name, one in pairs(row.resources or {}) do
      local capacity, load, pending, shut = parts_of(closed, one.total, one.load, one.pending)
      add('capacity_further:' .. name, sign * capacity)
      add('allocated_further:' .. name, sign * load)
      add('reserved_further:' .. name, sign * pending)
      add('closed_further:' .. name, sign * shut)
    end
  end

  -- Whether all that is free on a row is closed; nil: it is not counted.
  local function is_closed(row)
    if not string.find(node_pools.FRESH, row.pool, 1, true) then return nil end
    return row.pool == node_pools.OVER_LIMIT or (row.bounded and row.count_most >= 0
      and row.starting + row.running + row.pending_count >= row.count_most) or false
  end

  -- @inline "include/entry_order"

  -- What is being counted anew, `nodes` or `reservations`, and the last one that was; nil: nothing is.
  function tallies.place()
    local phase, last = string.match(sums_counted_to or '', '^(%a+) (.*)$')
    return phase, last
  end

  -- Whether a node's row, or a reservation's state, is among the sums.
  local function is_counted(what, identity)
    if not sums_counted_to then return true end
    local phase, last = tallies.place()
    if phase ~= what then return phase == 'reservations' end
    if what == 'reservations' then return (tonumber(identity) or 0) <= tonumber(last) end
    return not comes_before(0, last, 0, identity)
  end

  -- A node's row changes from what it was; nil stands for no row. Most that it says stays, and is not written.
  function tallies.move_row(node_id, before, row)
    if not is_counted('nodes', node_id) then return end
    tallies.add_row(before, row)
  end

  -- The same, whatever is being counted.
  function tallies.add_row(before, row)
    local was, is = before and is_closed(before), row and is_closed(row)
    local old, new = before or row, row or before
    if not old then return end
    local capacity, load, pending, shut = parts_of(was, old.cpu_capacity, old.cpu_load, old.pending_cpu, old.cpu_most)
    local capacity_now, load_now, pending_now, shut_now = parts_of(is, new.cpu_capacity, new.cpu_load, new.pending_cpu,
      new.cpu_most)
    add('capacity_cpu', capacity_now - capacity)
    add('allocated_cpu', load_now - load)
    add('reserved_cpu', pending_now - pending)
    add('closed_cpu', shut_now - shut)
    capacity, load, pending, shut = parts_of(was, old.memory_capacity, old.memory_load, old.pending_memory, old.memory_most)
    capacity_now, load_now, pending_now, shut_now = parts_of(is, new.memory_capacity, new.memory_load, new.pending_memory,
      new.memory_most)
    add('capacity_memory', capacity_now - capacity)
    add('allocated_memory', load_now - load)
    add('reserved_memory', pending_now - pending)
    add('closed_memory', shut_now - shut)
    if old.resources then add_further(was, old, -1) end
    if new.resources then add_further(is, new, 1) end
  end

  -- The reservation of this sequence goes from one state to another; nil: it comes, or goes.
  function tallies.move_state(sequence, from, to)
    if to == 'pending' then redis.call('HDEL', key('tallies'), 'oldest_sequence') end
    if not is_counted('reservations', sequence) then return end
    if from and from ~= 'pending' then redis.call('HINCRBY', key('tallies'), 'state_' .. from, -1) end
    if to and to ~= 'pending' then redis.call('HINCRBY', key('tallies'), 'state_' .. to, 1) end
  end

  -- Something cannot be told any more: all of it is to be counted anew.
  function tallies.distrust()
    redis.call('HDEL', key('tallies'), 'counted')
    redis.call('HDEL', KEYS[1], 'sums_counted_to')
  end

  -- What the straight text of placements has reserved goes to the sums.
  function tallies.fold_straight()
    local cpu, mib = unpack(redis.call('HMGET', key('rotations'), 'straight_cpu', 'straight_mib'))
    if (cpu or '0') == '0' and (mib or '0') == '0' then return end
    redis.call('HSET', key('rotations'), 'straight_cpu', 0, 'straight_mib', 0)
    redis.call('HINCRBY', key('tallies'), 'reserved_cpu', cpu)
    redis.call('HINCRBY', key('tallies'), 'reserved_memory', integer(tonumber(mib) * 1048576))
  end

  function tallies.flush()
    for field, by in pairs(changes) do
      if by ~= 0 then redis.call('HINCRBY', key('tallies'), field, integer(by)) end
      changes[field] = nil
    end
  end
end
