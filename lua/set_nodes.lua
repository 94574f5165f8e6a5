-- set_nodes.lua: changes the discovered list: adds, moves, drains and removes nodes in one step.
-- Guarantee: readers see all of the changes or none; an unchanged node is not touched.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2]: waiting  '1': nodes new to the ledger were known before it was lost and may not admit until they report;
--          so it is, whoever tells of them, while replicas put back what was lost
-- ARGV[3]: listed_count  how many triplets follow
-- ARGV[4..]: nodes  node_id, endpoint, active | lingering, …; then the ids to remove
-- Reply: {'changed', count} | {'again'} | {'uninitialised'} | {'unknown', what, found}
-- Errors: none
-- Cost: O(changes log nodes + open reservations of returning nodes); what is given up of those that return too
--       late goes in slices before anything changes
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/clock"
-- @include "include/settings"
-- @include "include/discovery"
-- @include "include/rebuilding"

local settings, refused = read_settings()
if refused then return refused end
read_binding_settings(settings)
local now = open_clock(ARGV[1])
local listed_end = 3 + 3 * tonumber(ARGV[3])
local about = (ARGV[2] == '1' or not_rebuilt(settings.gated_until_ms, now)) and { waiting = '1' } or nil

local settled = 0
for index = 4, listed_end, 3 do
  settled = settled + settle_absence(ARGV[index], now)
  if settled >= REMOVED_SLICE then
    save_rows()
    return { 'again', 'absence' }
  end
end

save_rows()
local joined, gone = {}, {}
for index = 4, listed_end, 3 do
  local node_id, endpoint, discovery = ARGV[index], ARGV[index + 1], ARGV[index + 2]
  local known = redis.call('HMGET', node_key(node_id), 'endpoint', 'discovery')
  if known[1] ~= endpoint or known[2] ~= discovery then
    list_node(node_id, endpoint, discovery, now, about)
    joined[#joined + 1] = index
  end
end
for index = listed_end + 1, #ARGV do
  if redis.call('ZSCORE', key('nodes'), ARGV[index]) then gone[#gone + 1] = ARGV[index] end
end
save_rows()
for _, index in ipairs(joined) do note_listed(ARGV[index], ARGV[index + 2]) end
delist_nodes(gone, now, settings)
close_clock(now)
return { 'changed', integer(#joined + #gone) }
