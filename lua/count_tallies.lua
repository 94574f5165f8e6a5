-- count_tallies.lua: counts the sums that are kept over the whole ledger anew (include/tallies).
-- Guarantee: they are those of one moment, and kept from then on.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- Reply: {'counted'} | {'uninitialised'} | {'unknown', what, found}
-- Cost: O(nodes + reservations): for a ledger that comes from an earlier version, or that a script left half-way
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/settings"
-- @include "include/rows"
local SLICE = 500

local _, refused = read_settings()
if refused then return refused end
redis.call('DEL', key('tallies'))
redis.call('HSET', key('rotations'), 'straight_cpu', 0, 'straight_mib', 0)

local first = 0
while true do
  local node_ids = redis.call('ZRANGE', key('nodes'), first, first + SLICE - 1)
  if #node_ids == 0 then break end
  for _, text in ipairs(redis.call('HMGET', key('loads'), unpack(node_ids))) do
    local row = text and parse_row(text)
    if row then tallies.move_row(nil, row) end
  end
  tallies.flush()
  first = first + SLICE
end

local states, last = {}, 0
while true do
  local ids = redis.call('ZRANGE', key('reservations'), last, last + SLICE - 1)
  if #ids == 0 then break end
  for _, id in ipairs(ids) do
    local state = redis.call('HGET', reservation_key(id), 'state')
    if state and state ~= 'pending' then states[state] = (states[state] or 0) + 1 end
  end
  last = last + SLICE
end
for state, count in pairs(states) do redis.call('HSET', key('tallies'), 'state_' .. state, integer(count)) end
redis.call('HSET', key('tallies'), 'counted', tallies.WHOLE)
return { 'counted' }
