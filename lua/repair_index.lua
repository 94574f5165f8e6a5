-- repair_index.lua: takes out of one row of the index what belongs elsewhere, and makes its head anew.
-- Guarantee: takes out nothing that stands where the row of its node says; whoever is missing comes back with repair_node.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2]: name  of the row: its class and number; or of the pool whose unknown nodes these are
-- ARGV[3]: first  rank of the first node of the slice
-- Reply: {'repaired', how many were taken out, how many there were in the slice} | {'uninitialised'}
--        {'unknown', what, found}
-- Cost: O(500 nodes)
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/settings"
-- @include "include/rows"
-- @include "include/met"
local SLICE = 500

local _, refused = read_settings()
if refused then return refused end
local name, first = ARGV[2], tonumber(ARGV[3])
local class, number = string.match(name, '^(.*):(%d+)$')
local full = key((class and 'row:' or 'unknown:') .. name)
local taken, members = 0, redis.call('ZRANGE', full, first, first + SLICE - 1)
for _, member in ipairs(members) do
  local node_id = string.sub(member, 31)
  local row = row_of(node_id)
  local place = row and cpu_rows.place_of(row, node_id)
  local found = { key = full, member = member }
  if not stands_at(place, found) or stands_twice(place, found) then
    taken = taken + redis.call('ZREM', full, member)
  elseif place.key == full then
    cpu_rows.enter_class(class, place.memory)
  end
end
if class then
  local least = redis.call('ZRANGE', full, '0', '0', 'WITHSCORES')[2]
  cpu_rows.set_head(class, tonumber(number), least and tonumber(least) or cpu_rows.EMPTY)
  cpu_rows.flush()
end
save_rows()
return { 'repaired', integer(taken), integer(#members) }
