-- restore_reservations.lua: restores reservations that a replica remembers, one slice of them.
-- Guarantee: idempotent, and without effect where nothing was lost: of two memories of one reservation the higher
--            revision stands, an end before what is open, a told name before none. What was open is held in full.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2]: replica_id
-- ARGV[3]: lease_ms  how long the ledger waits for this replica's next slice; 0: this is the last one
-- ARGV[4]: sequence  the most of the ledger's order that this replica was told; it goes on from there
-- ARGV[5..]: reservations  reservation_id, how many fields, field, value, …; at most 100 of them
-- Reply: {'restored', how many of them were missing or older, gated_ms}: how long others may still be waited for
--        {'uninitialised'} | {'unknown', what, found}
-- Cost: O(reservations in the slice)
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/clock"
-- @include "include/settings"
-- @include "include/restoring"
-- @include "include/gate"

local _, refused = read_settings()
if refused then return refused end
local now = open_clock(ARGV[1])
local lease_ms, told = tonumber(ARGV[3]), tonumber(ARGV[4])
if tonumber(redis.call('GET', key('sequence')) or '0') < told then redis.call('SET', key('sequence'), integer(told)) end

-- The reservation that starts at ARGV[first], and where the next one does.
local function remembered(first)
  local reservation, following = { reservation_id = ARGV[first] }, first + 2 + 2 * tonumber(ARGV[first + 1])
  for index = first + 2, following - 1, 2 do reservation[ARGV[index]] = ARGV[index + 1] end
  return reservation, following
end

local restored, following = 0, 0
for index = 5, #ARGV do
  if index >= following then
    local mine
    mine, following = remembered(index)
    local known = read_reservation(mine.reservation_id)
    local stands = reconciled(mine, known)
    if stands then
      if known then take_out(known) end
      put_in(stands, now)
      restored = restored + 1
    end
  end
end
save_rows()
if restored > 0 then redis.call('HINCRBY', key('stats'), 'reservations_restored', restored) end
local gated_ms = hear_from(ARGV[2], lease_ms > 0 and now + lease_ms or 0, now)
close_clock(now)
return { 'restored', integer(restored), integer(gated_ms) }
