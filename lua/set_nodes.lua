-- set_nodes.lua: changes the discovered list: adds, moves, drains and removes nodes in one step.
-- Guarantee: readers see all of the changes or none; an unchanged node is not touched.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2]: waiting  '1': nodes new to the ledger were known before it was lost and may not admit until they report;
--          so it is, whoever tells of them, while replicas restore what was lost
-- ARGV[3]: source  of their labels: labels_api | labels_kubernetes
-- ARGV[4]: listed_count  how many quadruplets follow
-- ARGV[5..]: nodes  node_id, endpoint, active | lingering, labels as include/labels writes them or '-' to leave them, …;
--          then the ids to remove
-- Reply: {'changed', count, node_id that stays without labels because there are too many label sets, …}
--        {'full'}  labels told by the API would make too many label sets, and nothing was changed | {'again'}
--        {'uninitialised'} | {'unknown', what, found}
-- Cost: O(changes log nodes); what returning nodes have open is counted, and what is evicted of those that return too
--       late ended, in slices before anything changes
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
local source, listed_end = ARGV[3], 4 + 4 * tonumber(ARGV[4])
local about = (ARGV[2] == '1' or not_rebuilt(settings.gated_until_ms, now)) and { waiting = '1' } or nil

do
  local node_ids, endpoints = {}, {}
  for index = 5, listed_end, 4 do
    node_ids[#node_ids + 1], endpoints[ARGV[index]] = ARGV[index], ARGV[index + 1]
  end
  if not settle_returns(node_ids, endpoints, now) then return { 'again', 'returns' } end
end

local joined, relabelled, without, gone = {}, 0, {}, {}
for index = 5, source == 'labels_api' and listed_end or 0, 4 do
  if ARGV[index + 3] ~= '-' and not labelling.fits(ARGV[index], source, ARGV[index + 3]) then return { 'full' } end
end
for index = 5, listed_end, 4 do
  local node_id, endpoint, discovery, labels = ARGV[index], ARGV[index + 1], ARGV[index + 2], ARGV[index + 3]
  local known = redis.call('HMGET', node_key(node_id), 'endpoint', 'discovery', source, 'unlabelled')
  local listing = known[1] ~= endpoint or known[2] ~= discovery
  if listing then
    list_node(node_id, endpoint, discovery, now, about)
    joined[#joined + 1] = index
  end
  if labels ~= '-' and (labels ~= (known[3] or '') or known[4] == '1') then
    if not labelling.apply(node_id, source, labels) then without[#without + 1] = node_id end
    if not listing then relabelled = relabelled + 1 end
  end
end
for index = listed_end + 1, #ARGV do
  if redis.call('ZSCORE', key('nodes'), ARGV[index]) then gone[#gone + 1] = ARGV[index] end
end
save_rows()
for _, index in ipairs(joined) do note_listed(ARGV[index], ARGV[index + 2]) end
delist_nodes(gone, now, settings)
close_clock(now)
return { 'changed', integer(#joined + #gone + relabelled), unpack(without) }
