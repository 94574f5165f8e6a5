-- renew_reservation.lua: moves the deadline of a pending reservation.
-- Guarantee: only a reservation that still holds its place is renewed.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2]: reservation_id
-- ARGV[3]: ttl_ms  from now
-- Reply: {'ok', replayed, orphaned, {reservation fields}} | {'conflict', state, {reservation fields}}
--        {'missing', rebuilding} | {'uninitialised'} | {'unknown', what, found} | {'not_rebuilt', ms, of what}
-- Cost: O(log reservations)
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/clock"
-- @include "include/settings"
-- @include "include/deadlines"
-- @include "include/rebuilding"

local settings, refused = read_settings()
if refused then return refused end
local now = open_clock(ARGV[1])
local gated = not_rebuilt(settings.gated_until_ms, now)
if gated then return gated end
local id = ARGV[2]
local reservation = read_reservation(id)
if not reservation then return missing(now) end
end_when_due(reservation, now)
save_rows()
if reservation.state ~= 'pending' then
  return { 'conflict', reservation.state, redis.call('HGETALL', reservation_key(id)) }
end
local deadline = integer(now + tonumber(ARGV[3]))
if not reservation.ttl_ms then
  -- The original TTL says how long it stays readable, whatever deadlines follow.
  redis.call('HSET', reservation_key(id), 'ttl_ms', integer(reservation.expires_at_ms - reservation.created_at_ms))
end
change_reservation(id, 'expires_at_ms', deadline)
redis.call('HDEL', reservation_key(id), 'own_deadline_ms')
redis.call('ZADD', key('expiry'), deadline, id)
close_clock(now)
return { 'ok', '0', '0', redis.call('HGETALL', reservation_key(id)) }
