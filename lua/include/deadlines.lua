-- @include "include/reservations"
-- @include "include/stored_settings"
-- Ends the reservations that time has ended, whether maintenance came to them or not.
-- What is due, and how much of it one call works off.
local overdue = { SLICE = 32 }

-- While a lost ledger is being put back nothing ends by time: another replica may remember a later deadline.
function overdue.is_suspended(now)
  return gated_until ~= nil and tonumber(gated_until) > now
end

local end_when_due
do
  local function expire_reservation(reservation, now)
    if reservation.state == 'confirmed' then
      finish_reservation(reservation, 'settled', 'unobserved', now)
    else
      finish_reservation(reservation, 'expired', 'deadline', now)
    end
    leave_untold(reservation.reservation_id)
  end

  -- Ends a reservation that time has ended, swept or not: by its deadline, or with its node, whichever
  -- came first. Every script that looks at one reservation asks this before anything else.
  function end_when_due(reservation, now)
    if reservation.state ~= 'pending' and reservation.state ~= 'confirmed' or overdue.is_suspended(now) then return end
    local deadline = tonumber(reservation.expires_at_ms)
    local node_is_gone, gone_at = is_evicted(reservation.node_id, now)
    if node_is_gone and gone_at < deadline then
      finish_reservation(reservation, reservation.state == 'confirmed' and 'settled' or 'expired', 'node_removed', now)
    elseif deadline <= now then
      expire_reservation(reservation, now)
    end
  end
end

-- Ends the reservations with these ids that time has ended.
function overdue.finish(ids, now)
  for _, reservation_id in ipairs(ids) do
    local reservation = read_reservation(reservation_id)
    if reservation and (reservation.state == 'pending' or reservation.state == 'confirmed') then
      end_when_due(reservation, now)
    else
      -- Its end, or its beginning, was stopped half-way.
      redis.call('ZREM', key('expiry'), reservation_id)
      if not reservation then redis.call('ZREM', key('reservations'), reservation_id) end
    end
  end
end

-- Works off the head of `expiry`; how many. As many as the slice: more may be due.
function overdue.work_off(now, slice)
  if overdue.is_suspended(now) then return 0 end
  local due = redis.call('ZRANGEBYSCORE', key('expiry'), '-inf', integer(now), 'LIMIT', 0, slice)
  overdue.finish(due, now)
  return #due
end

-- Which of these (not none) are due, at most `most`; and how many of them were looked at.
function overdue.among(ids, most, now)
  local due = {}
  if overdue.is_suspended(now) then return due, #ids end
  for index, deadline in ipairs(redis.call('ZMSCORE', key('expiry'), unpack(ids))) do
    if deadline and tonumber(deadline) <= now then due[#due + 1] = ids[index] end
    if #due == most then return due, index end
  end
  return due, #ids
end
