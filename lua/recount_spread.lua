-- recount_spread.lua: holds what a spread key counts against reservations and records of sandboxes.
-- Guarantee: one moment's truth, whatever else is going on; writes nothing.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2]: spread_key
-- ARGV[3]: walked_to  sequence; the caller has read every reservation up to it
-- ARGV[4]: reservations_count  how many of the following ids are reservations
-- ARGV[5..]: ids  reservations, then sandboxes, that named the key
-- Reply: {'recounted', subject, rule, detail, …} | {'moved'}  so much was placed meanwhile that the caller must read again
--        {'uninitialised'} | {'unknown', what, found}
-- Cost: O(ids + reservations newer than walked_to, at most 2,000 of these)
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/settings"
-- @include "include/recount_spread"
-- @include "include/findings"

local _, refused = read_settings()
if refused then return refused end
local spread_key = ARGV[2]
local subject = 'spread ' .. spread_key
local counts, wrong = recounted_spread(spread_key)
if not counts then return { 'moved' } end
for _, each in ipairs(wrong) do
  local wrong = each[2] and ' does not count, although it is open'
    or ' counts, although it has ended or its sandbox counts'
  finding(subject, 'reservation', each[1] .. wrong)
end
local total, found = 0, as_table(redis.call('HGETALL', key('spread:' .. spread_key)))
for node_id, count in pairs(counts) do
  total = total + count
  if tonumber(found[node_id] or '0') ~= count then
    finding(subject, 'count', 'node ' .. node_id .. ' has ' .. shown(found[node_id]) .. ', expected ' .. integer(count))
  end
end
for node_id, count in pairs(found) do
  if not counts[node_id] then finding(subject, 'count', 'node ' .. node_id .. ' has ' .. count .. ', expected nothing') end
end
local listed = redis.call('HGET', key('spreads'), spread_key)
if tonumber(listed or '0') ~= total then
  finding(subject, 'total', 'is listed with ' .. shown(listed) .. ', expected ' .. integer(total))
end
return findings
