-- read_reservation.lua: one reservation as it stands now.
-- Guarantee: one whose deadline has passed is shown as it ended, swept or not.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2]: reservation_id
-- Reply: {'ok', {reservation fields}} | {'missing', rebuilding} | {'uninitialised'} | {'unknown', what, found}
-- Cost: O(log reservations)
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/clock"
-- @include "include/settings"
-- @include "include/deadlines"
-- @include "include/rebuilding"

local _, refused = read_settings()
if refused then return refused end
local now = open_clock(ARGV[1])
local reservation = read_reservation(ARGV[2])
if not reservation then return missing(now) end
end_when_due(reservation, now)
save_rows()
return { 'ok', redis.call('HGETALL', reservation_key(ARGV[2])) }
