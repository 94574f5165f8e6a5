-- @include "include/keys"
-- @include "include/reply"
-- @include "include/pools"
-- Sums over the whole ledger that are kept with each change, so that nobody has to walk it for a summary:
--   tallies   hash: capacity_, allocated_, reserved_ and closed_ of `cpu`, `memory` and `further:<resource>`, over the nodes
--             that take creations and say what they have (pools r, c, o); free is the first less the others. `closed` is
--             what limits leave unused, less what a node holds beyond its capacity. state_<state>: reservations that are
--             no longer pending.
--             oldest_sequence: no reservation before it is pending.
--             counted: tallies.WHOLE while all this is known to be whole (else read_summary has it counted anew)
-- The straight text of a placement keeps what it reserves in `rotations`, whose write it makes anyway: straight_cpu and
-- straight_mib, until a sweep moves them here.
-- WHOLE: another number once there are more sums.
local tallies = { WHOLE = '2' }
do
  local changes = {}

  local function add(field, by)
    if by ~= 0 then changes[field] = (changes[field] or 0) + by end
  end

  local function add_dimension(name, sign, capacity, load, pending, most, closed)
    if capacity < 0 then return end
    local left = capacity - load - pending
    local free = (most and most >= 0) and math.min(left, most - load - pending) or left
    if closed or free < 0 then free = 0 end
    add('capacity_' .. name, sign * capacity)
    add('allocated_' .. name, sign * load)
    add('reserved_' .. name, sign * pending)
    add('closed_' .. name, sign * (left - free))
  end

  -- What a row adds to the sums (`sign` 1), or takes from them (-1).
  function tallies.add_row(row, sign)
    if not string.find(node_pools.FRESH, row.pool, 1, true) then return end
    local closed = row.pool == node_pools.OVER_LIMIT or (row.bounded and row.count_most >= 0
      and row.starting + row.running + row.pending_count >= row.count_most)
    add_dimension('cpu', sign, row.cpu_capacity, row.cpu_load, row.pending_cpu, row.cpu_most, closed)
    add_dimension('memory', sign, row.memory_capacity, row.memory_load, row.pending_memory, row.memory_most, closed)
    for name, one in pairs(row.resources or {}) do
      add_dimension('further:' .. name, sign, one.total, one.load, one.pending, nil, closed)
    end
  end

  -- A reservation goes from one state to another; nil: it comes, or goes.
  function tallies.move_state(from, to)
    if from and from ~= 'pending' then redis.call('HINCRBY', key('tallies'), 'state_' .. from, -1) end
    if to == 'pending' then
      redis.call('HDEL', key('tallies'), 'oldest_sequence')
    elseif to then
      redis.call('HINCRBY', key('tallies'), 'state_' .. to, 1)
    end
  end

  -- Something cannot be told any more: all of it is to be counted anew.
  function tallies.distrust() redis.call('HDEL', key('tallies'), 'counted') end

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
