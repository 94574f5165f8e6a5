-- tally_reservations.lua: how many reservations are open, by node and state, a slice at a time.
-- Guarantee: writes nothing; exact while nothing changes, close to it between slices while reservations come and go.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2]: first  how many of the open ones are done with; 0 starts
-- Reply: {'tally', next first ('': that was all), node_id, state, count, age_ms of the oldest, …}
--        {'uninitialised'} | {'unknown', what, found}
-- Cost: O(slice), about 500 reservations
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/clock"
-- @include "include/settings"
local SLICE = 500

local _, refused = read_settings()
if refused then return refused end
local now = open_clock(ARGV[1])
local first = tonumber(ARGV[2])
local open = redis.call('ZRANGE', key('expiry'), first, first + SLICE - 1)
local counts, oldest, order = {}, {}, {}
for _, id in ipairs(open) do
  local found = redis.call('HMGET', reservation_key(id), 'node_id', 'state', 'created_at_ms', 'expires_at_ms')
  if found[1] and tonumber(found[4]) > now then
    local kind = found[2] .. ' ' .. found[1]
    if not counts[kind] then order[#order + 1] = { kind = kind, node_id = found[1], state = found[2] } end
    counts[kind] = (counts[kind] or 0) + 1
    oldest[kind] = math.max(oldest[kind] or 0, now - tonumber(found[3]))
  end
end
local reply = { 'tally', #open == SLICE and integer(first + SLICE) or '' }
for _, group in ipairs(order) do
  for _, fact in ipairs({ group.node_id, group.state, integer(counts[group.kind]), integer(oldest[group.kind]) }) do
    reply[#reply + 1] = fact
  end
end
return reply
