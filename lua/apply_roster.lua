-- apply_roster.lua: applies one slice of the difference between a node's installed roster and its new one.
-- Guarantee: only the newest report's roster is applied; a half-applied one is never taken for whole: nothing
--            is lowered by it until the last slice is in.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2]: node_id
-- ARGV[3]: generation  of the report this roster came with
-- ARGV[4]: roster_edits  as the last reply told it; a change since then leaves the roster unfinished
-- ARGV[5]: roster_digest  of the whole new roster in the last slice, '' in all others
-- ARGV[6]: contested_count  how many ids of earlier slices another node keeps
-- ARGV[7]: added_count  how many of the following ids were added
-- ARGV[8..]: sandbox_ids  the added, then those no longer listed; at most 500 of them
-- Reply: {'applied', roster_edits, more (1|0), {changes of reservations}, contested id, …} | {'superseded'}
--        {'uninitialised'} | {'unknown', what, found} | {'not_rebuilt', ms, of what}
-- Cost: O(ids in the slice + unnamed reservations of the node, at most 1,024)
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/clock"
-- @include "include/settings"
-- @include "include/install"
-- @include "include/resting"
-- @include "include/entered"
-- @include "include/rebuilding"

local settings, refused = read_settings()
if refused then return refused end
read_binding_settings(settings)
local now = open_clock(ARGV[1])
local gated = not_rebuilt(settings.gated_until_ms, now)
if gated then return gated end
local node_id, node, digest = ARGV[2], node_key(ARGV[2]), ARGV[5]
local known = as_table_of(node, 'generation', 'roster_edits', 'roster_digest', 'sequence', 'interval_ms', 'reports',
  'create_successes', 'create_fails', 'sandbox_starting_count')
if known.generation ~= ARGV[3] then return { 'superseded' } end
report_generation = ARGV[3]
local generation, account = tonumber(ARGV[3]), account_of(node_id)
local edits = known.roster_edits or '0'
local untouched = edits == ARGV[4]

local added, removed = {}, {}
for index = 8, #ARGV do
  local slice = index <= 7 + tonumber(ARGV[7]) and added or removed
  slice[#slice + 1] = ARGV[index]
end
-- Without ids it only works off what the report before has proven.
if added[1] or removed[1] then
  account.roster_whole = 0
  redis.call('HDEL', node, 'roster_digest')
end
local contested = install_added(node_id, added, generation, now)
entries.list(node_id, account, #added - #contested)
install_removed(node_id, removed, generation, #report_times.parse(known.reports) <= 1, now)
if added[1] or removed[1] then edits = integer(redis.call('HINCRBY', node, 'roster_edits', 1)) end

local more = false
if digest ~= '' then
  local contested_count = tonumber(ARGV[6]) + #contested
  if untouched and contested_count == 0 then
    account.roster_whole = 1
    redis.call('HSET', node, 'roster_digest', digest)
  end
  note_conflicts(node_id, contested_count)
  more = judge_absence(node_id, known, settings, generation, now)
  if account.roster_whole == 1 then
    local first = account.entered < 0
    if first then entries.count(node_id, account, known, 0) end
    if redis.call('EXISTS', node_key(node_id, 'sandboxes')) == 1 then
      more = entries.settle(node_id, account, now) or more
    end
    rest_on(node_id, account, generation, first)
  end
  weigh_again(node_id)
end
save_rows()
close_clock(now)
return { 'applied', edits, more and '1' or '0', told_changes(), unpack(contested) }
