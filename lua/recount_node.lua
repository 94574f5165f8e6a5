-- recount_node.lua: holds everything the ledger keeps about one node against what it stands for.
-- Guarantee: one moment's truth, whatever else is going on; writes nothing.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2]: node_id  listed or not: of a node that is not, hardly anything may be left
-- Reply: {'recounted', subject, rule, detail, …} | {'uninitialised'} | {'unknown', what, found}
-- Cost: O(open reservations of the node + its roster, up to 2,000 ids)
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/clock"
-- @include "include/settings"
-- @include "include/observe"
-- @include "include/reservations"
-- @include "include/findings"
-- @include "include/recount_claims"
-- @include "include/recount_account"
-- @include "include/cpu_configs"

local settings, refused = read_settings()
if refused then return refused end
local now, node_id = open_clock(ARGV[1]), ARGV[2]
local subject = 'node ' .. node_id
local known = as_table_of(node_key(node_id), 'discovery', 'status', 'over_limit', 'last_seen_ms', 'waiting', 'labels',
  'unlabelled')
local listed = redis.call('ZSCORE', key('nodes'), node_id)
local row = row_of(node_id)

local function score_in(set) return redis.call('ZSCORE', key(set), node_id) end

-- A node that is avoided is watched, and says until when.
local function recount_avoidance()
  local watched = redis.call('ZSCORE', key('avoided_until'), node_id)
  local level = redis.call('HGET', node_key(node_id), 'avoid_level')
  if (watched ~= false) ~= (level ~= false) or (row and row.avoided and not watched) then
    finding(subject, 'avoidance', 'is avoided at level ' .. shown(level) .. ', until ' .. shown(watched))
  end
end

-- A node's CPU template takes part in its cluster's exactly as long as the node is observed.
local function recount_cpu_config()
  local kept = as_table_of(node_key(node_id, 'cpu_config'), 'listed', 'cluster_id', 'digest')
  if not kept.listed then return end
  local member = kept.digest .. ' ' .. node_id
  local takes_part = redis.call('ZSCORE', cpu_configs_key(kept.cluster_id), member) ~= false
  local expected = kept.listed == '1' and listed and known.last_seen_ms ~= nil
  if takes_part ~= expected or (kept.listed == '1') ~= expected then
    finding(subject, 'cpu_config', 'takes part in its cluster\'s CPU template although it should not, or the reverse')
  end
end

local cpu, memory, count, nameless, further = recount_claims(node_id, subject)
local account = account_of(node_id)
if account then
  cpu, memory, count = cpu - account.discount_cpu, memory - account.discount_memory, count - account.discount_count
end
recount_unnamed(node_id, subject, nameless)
recount_account(node_id, subject)
-- @inline "inline/recount_listing"
-- @inline "inline/recount_rank"
recount_avoidance()
recount_cpu_config()
-- @inline "inline/recount_pending"
if not listed then
  local function left(part, until_done)
    if redis.call('EXISTS', node_key(node_id, part)) == 1 and not (until_done and score_in(until_done)) then
      finding(subject, 'orphan', 'is not listed, and nothing will ever clear its ' .. part)
    end
  end
  left('acknowledged', 'removed')
  left('doubts', 'removed')
  left('deleted', 'forgotten')
  left('sandboxes', 'forgotten')
  left('artifacts')
  left('warm')
end
return findings
