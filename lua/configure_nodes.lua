-- configure_nodes.lua: lists the nodes of a replica's configuration, and takes out those that left it.
-- Guarantee: the configuration of the highest revision stands: an earlier one changes nothing, and what only an
--            earlier one listed leaves. Of two with the same revision, none takes out what the other lists while
--            another replica is alive. A node that drains goes on draining; what others listed is not touched.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2]: replica_id
-- ARGV[3]: revision  of this configuration
-- ARGV[4]: waiting  '1': nodes new to the ledger were known before it was lost, as for set_nodes
-- ARGV[5]: listed_count  how many triplets follow
-- ARGV[6..]: nodes  node_id, endpoint, labels as include/labels writes them, …; then ids that this configuration does
--          not list
-- Reply: {'configured', {node_id, endpoint, state, …} that changed, {node_id, …} taken out, {node_id, …} that stay
--        because another replica is alive, {node_id, …} without their labels, because there are too many label sets}
--        {'outdated', revision of the ledger's settings}
--        {'again'} | {'uninitialised'} | {'unknown', what, found}
-- Cost: O(changes log nodes); what returning nodes have open is counted, and what is evicted of those that return too
--       late ended, in slices before anything changes
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/clock"
-- @include "include/settings"
-- @include "include/discovery"
-- @include "include/rebuilding"
-- @include "include/members"

local settings, refused = read_settings()
if refused then return refused end
read_binding_settings(settings)
local now = open_clock(ARGV[1])
local revision, listed_end = tonumber(ARGV[3]), 5 + 3 * tonumber(ARGV[5])
local about = (ARGV[4] == '1' or not_rebuilt(settings.gated_until_ms, now)) and { waiting = '1' } or nil
local in_force = redis.call('HGET', KEYS[1], 'revision')
if tonumber(in_force) > revision then return { 'outdated', in_force } end

do
  local node_ids, endpoints = {}, {}
  for index = 6, listed_end, 3 do
    node_ids[#node_ids + 1], endpoints[ARGV[index]] = ARGV[index], ARGV[index + 1]
  end
  if not settle_returns(node_ids, endpoints, now) then return { 'again', 'returns' } end
end

local changed, gone, kept, without = {}, {}, {}, {}
for index = 6, listed_end, 3 do
  local node_id, endpoint, labels = ARGV[index], ARGV[index + 1], ARGV[index + 2]
  local known = redis.call('HMGET', node_key(node_id), 'endpoint', 'discovery', 'labels_configured', 'unlabelled')
  local state = known[2] == 'lingering' and 'lingering' or 'active'
  if known[1] ~= endpoint or known[2] ~= state then
    list_node(node_id, endpoint, state, now, about)
    for _, part in ipairs({ node_id, endpoint, state }) do changed[#changed + 1] = part end
  end
  if labels ~= (known[3] or '') or known[4] == '1' then
    if not labelling.apply(node_id, 'labels_configured', labels) then without[#without + 1] = node_id end
  end
  redis.call('ZADD', key('configured'), integer(revision), node_id)
end
local shared = #ARGV > listed_end and others_alive(ARGV[2], now)
for index = listed_end + 1, #ARGV do
  local configured_at = tonumber(redis.call('ZSCORE', key('configured'), ARGV[index]) or '')
  if configured_at and configured_at == revision and shared then
    kept[#kept + 1] = ARGV[index]
  elseif configured_at and configured_at <= revision then
    gone[#gone + 1] = ARGV[index]
  end
end
save_rows()
for index = 1, #changed, 3 do note_listed(changed[index], changed[index + 2]) end
delist_nodes(gone, now, settings)
close_clock(now)
return { 'configured', changed, gone, kept, without }
