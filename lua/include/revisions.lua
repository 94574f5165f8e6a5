-- @include "include/keys"
-- @include "include/reply"
-- @include "include/tallies"
-- Every change of a reservation raises its revision, so that of two memories of it the newer one can be told.
-- Replicas remember what they answered and put it back into a ledger that lost it (restore_reservations). What a
-- script changes beside what it was asked for is known to nobody but the replica that called it, so it is told too.
local change_reservation, leave_untold, told_changes
do
  local changes = { told = {}, order = {} }

  -- Writes fields of a reservation; none when what changes is written otherwise.
  function change_reservation(reservation_id, ...)
    local field, state = ...
    if field == 'state' then
      local before, sequence = unpack(redis.call('HMGET', reservation_key(reservation_id), 'state', 'sequence'))
      tallies.move_state(sequence, before, state)
    end
    if ... then redis.call('HSET', reservation_key(reservation_id), ...) end
    redis.call('HINCRBY', reservation_key(reservation_id), 'revision', 1)
    if not changes.told[reservation_id] then
      changes.told[reservation_id] = true
      changes.order[#changes.order + 1] = reservation_id
    end
  end

  -- What ended by its deadline needs no telling: whoever remembers it knows the deadline.
  function leave_untold(reservation_id)
    changes.told[reservation_id] = nil
  end

  -- For the end of a reply, at most 100: how many changed that are not told, then reservation_id, {reservation fields}, …
  function told_changes()
    local told, untold = { '0' }, 0
    for _, reservation_id in ipairs(changes.order) do
      if changes.told[reservation_id] and #told < 200 then
        told[#told + 1] = reservation_id
        told[#told + 1] = redis.call('HGETALL', reservation_key(reservation_id))
      elseif changes.told[reservation_id] then
        untold = untold + 1
      end
    end
    told[1] = integer(untold)
    return told
  end
end
