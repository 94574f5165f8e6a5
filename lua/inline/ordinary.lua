-- inline/ordinary.lua: whether the ledger is in a state in which creations may be placed in the ordinary way
-- (inline/straight says what that is): the strategy, the times, where the rotations stand, and the classes of the
-- index. `break` leaves the block around it when it is not. Whoever uses it asks whether a node is avoided, with what
-- else it asks.
-- Reads: stored
-- Sets: admission, call, fill_to, form, format, listed, now, now_ms, placement, report_ttl_ms, reservation_ttl_ms,
--   rotations, strategy
local call, form = redis.call, string.format
local format, strategy, admission, placement, report_ttl_ms, reservation_ttl_ms = unpack(stored, 1, 6)
local fill_to = share_filled(strategy, stored[13])
if format ~= FORMAT or not fill_to or (admission ~= 'strategy' and admission ~= 'always')
  or not rotation_of_groups(placement) or stored[7] == 'unlimited' or stored[8] == 'unlimited'
  or stored[10] or stored[12] or (stored[15] or '') ~= '' or sums_counted_to then
  break
end
local rotations = call('HMGET', prefix .. 'rotations', 'now', 'offset', 'ties', 'placed', 'straight_cpu',
  'straight_mib')
local now = read_clock(ARGV[1], rotations[1], rotations[2])
local now_ms = form('%d', now)
if call('ZCOUNT', prefix .. 'seen', '-inf', form('(%d', now - report_ttl_ms)) > 0
  or call('ZCOUNT', prefix .. 'expiry', '-inf', now_ms) > 0 then
  break
end
local listed = call('HGETALL', prefix .. 'classes')
