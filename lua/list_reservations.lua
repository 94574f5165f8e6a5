-- list_reservations.lua: one page of reservations, oldest first.
-- Guarantee: looks at no more than a bounded number of reservations, matching or not.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2]: after_sequence  exclusive; '' starts at the oldest
-- ARGV[3]: limit  how many to look at
-- ARGV[4]: node_id  '' for all nodes
-- ARGV[5]: state  '' for all states
-- Reply: {'page', last sequence looked at | '', {reservation_id, {reservation fields}, …}} | {'again'}
--        {'uninitialised'} | {'unknown', what, found}
-- Errors: none
-- Cost: O(limit)
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/clock"
-- @include "include/settings"
-- @include "include/reservations"

local _, refused = read_settings()
if refused then return refused end
local now = open_clock(ARGV[1])
if expire_due(now, EXPIRY_SLICE) == EXPIRY_SLICE then
  save_rows()
  return { 'again', 'expiry' }
end
save_rows()
local from = ARGV[2] == '' and '-inf' or '(' .. ARGV[2]
local found = redis.call('ZRANGEBYSCORE', key('reservations'), from, '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[3])
local page = {}
for index = 1, #found, 2 do
  local fields = redis.call('HGETALL', reservation_key(found[index]))
  local reservation = as_table(fields)
  if #fields > 0 and (ARGV[4] == '' or reservation.node_id == ARGV[4]) and (ARGV[5] == '' or reservation.state == ARGV[5]) then
    page[#page + 1] = found[index]
    page[#page + 1] = fields
  end
end
local full = #found == 2 * tonumber(ARGV[3])
return { 'page', full and found[#found] or '', page }
