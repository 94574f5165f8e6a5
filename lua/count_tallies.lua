-- count_tallies.lua: counts the sums that are kept over the whole ledger anew (include/tallies), a slice at a time.
-- Guarantee: once it is through they are those of one moment, whatever changes between two slices, and kept from then on.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- Reply: {'counted'} | {'again', 'sums'}: a slice was counted, and more are left | {'uninitialised'} |
--        {'unknown', what, found}
-- Cost: O(slice): for a ledger that comes from an earlier version, or that a script left half-way
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/settings"
-- @include "include/rows"
local SLICE = 250

local _, refused = read_settings()
if refused then return refused end
if redis.call('HGET', key('tallies'), 'counted') == tallies.WHOLE then return { 'counted' } end

-- A slice that is stopped half-way leaves no place to go on from, so all of it is counted again.
local function go_on_from(place)
  tallies.flush()
  redis.call('HSET', KEYS[1], 'sums_counted_to', place)
  return { 'again', 'sums' }
end

local phase, last = tallies.place()
redis.call('HDEL', KEYS[1], 'sums_counted_to')
if not phase then
  redis.call('DEL', key('tallies'))
  redis.call('HSET', key('rotations'), 'straight_cpu', 0, 'straight_mib', 0)
  return go_on_from('nodes ')
end

if phase == 'nodes' then
  local node_ids = redis.call('ZRANGEBYLEX', key('nodes'), last == '' and '-' or '(' .. last, '+', 'LIMIT', 0, SLICE)
  if #node_ids == 0 then return go_on_from('reservations 0') end
  for _, text in ipairs(redis.call('HMGET', key('loads'), unpack(node_ids))) do
    local row = text and parse_row(text)
    if row then tallies.add_row(nil, row) end
  end
  return go_on_from('nodes ' .. node_ids[#node_ids])
end

local ids = redis.call('ZRANGEBYSCORE', key('reservations'), '(' .. last, '+inf', 'WITHSCORES', 'LIMIT', 0, SLICE)
local states = {}
for index = 1, #ids, 2 do
  local state = redis.call('HGET', reservation_key(ids[index]), 'state')
  if state and state ~= 'pending' then states[state] = (states[state] or 0) + 1 end
end
for state, count in pairs(states) do redis.call('HINCRBY', key('tallies'), 'state_' .. state, integer(count)) end
if #ids > 0 then return go_on_from('reservations ' .. ids[#ids]) end
redis.call('HSET', key('tallies'), 'counted', tallies.WHOLE)
return { 'counted' }
