-- list_reservations.lua: one page of reservations, oldest first.
-- Guarantee: looks at no more than a bounded number of reservations, matching or not; of one node, at that node's alone.
--            What is due among them has ended, and nothing else is waited for.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2]: after_sequence  exclusive; '' starts at the oldest
-- ARGV[3]: limit  how many to look at
-- ARGV[4]: node_id  '' for all nodes
-- ARGV[5]: state  '' for all states
-- Reply: {'page', last sequence looked at | '', {reservation_id, {reservation fields}, …}} | {'again'}
--        {'uninitialised'} | {'unknown', what, found}
-- Cost: O(limit)
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/clock"
-- @include "include/settings"
-- @include "include/deadlines"

local _, refused = read_settings()
if refused then return refused end
local now = open_clock(ARGV[1])
local node_id, state, limit = ARGV[4], ARGV[5], tonumber(ARGV[3])

-- The lists that hold such reservations; a node has one of open and one of finished ones.
local lists = { key('reservations') }
if node_id ~= '' then
  local open, finished = node_key(node_id, 'reservations'), node_key(node_id, 'finished')
  lists = (state == 'pending' or state == 'confirmed') and { open } or { finished }
  if state == '' then lists = { open, finished } end
end

-- { id, sequence } of the next ones in those lists, oldest first.
local function next_ones()
  local from, found = ARGV[2] == '' and '-inf' or '(' .. ARGV[2], {}
  for _, list in ipairs(lists) do
    local some = redis.call('ZRANGEBYSCORE', list, from, '+inf', 'WITHSCORES', 'LIMIT', 0, limit)
    for index = 1, #some, 2 do found[#found + 1] = { id = some[index], sequence = tonumber(some[index + 1]) } end
  end
  if #lists > 1 then table.sort(found, function(one, other) return one.sequence < other.sequence end) end
  for index = #found, limit + 1, -1 do found[index] = nil end
  return found
end

local found, page = next_ones(), {}

-- Ends those of them that are due, a slice of them; whether none is left.
local function expire_found()
  local ids = {}
  for index, each in ipairs(found) do ids[index] = each.id end
  if not ids[1] or redis.call('ZCOUNT', key('expiry'), '-inf', integer(now)) == 0 then return true end
  local due = overdue.among(ids, overdue.SLICE, now)
  overdue.finish(due, now)
  save_rows()
  return #due < overdue.SLICE
end
if not expire_found() then return { 'again', 'expiry' } end
for _, each in ipairs(found) do
  local fields = redis.call('HGETALL', reservation_key(each.id))
  local reservation = as_table(fields)
  if #fields > 0 and (node_id == '' or reservation.node_id == node_id) and (state == '' or reservation.state == state) then
    page[#page + 1] = each.id
    page[#page + 1] = fields
  end
end
return { 'page', #found == limit and integer(found[limit].sequence) or '', page }
