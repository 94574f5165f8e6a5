-- apply_roster.lua: applies one slice of the difference between a node's last roster and its new one.
-- Guarantee: only the newest report's roster is applied; a half-applied one is never taken for whole,
--            because the first slice clears the stored digest and the last one writes the new one.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2]: node_id
-- ARGV[3]: generation  of the report this roster came with
-- ARGV[4]: roster_edits  as the report's reply told it; a change since then leaves the digest unwritten
-- ARGV[5]: roster_digest  of the whole new roster in the last slice, '' in all others
-- ARGV[6]: added_count  how many of the following ids were added
-- ARGV[7..]: sandbox_ids  the added, then those no longer listed; at most 500 of them
-- Reply: {'applied'} | {'superseded'} | {'uninitialised'} | {'unknown', what, found}
-- Errors: none
-- Cost: O(ids in the slice)
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/clock"
-- @include "include/settings"
-- @include "include/credit"
-- @include "include/identity"

local settings, refused = read_settings()
if refused then return refused end
read_binding_settings(settings)
local now = open_clock(ARGV[1])
local node_id, node = ARGV[2], node_key(ARGV[2])
local known = as_table_of(node_key(node_id), 'generation', 'roster_edits')
if known.generation ~= ARGV[3] then return { 'superseded' } end
redis.call('HDEL', node, 'roster_digest')
report_generation = ARGV[3]

local added, removed = {}, {}
for index = 7, #ARGV do
  local slice = index <= 6 + tonumber(ARGV[6]) and added or removed
  slice[#slice + 1] = ARGV[index]
end
bind_listed(node_id, added, now)
local claims = added[1] and redis.call('HMGET', node_key(node_id, 'claims'), unpack(added)) or {}
for index, claimed in ipairs(claims) do
  if claimed then judge_claim(node_id, added[index], true, settings, now, nil) end
end
if removed[1] then redis.call('SREM', node_key(node_id, 'sandboxes'), unpack(removed)) end
unbind(node_id, removed)
save_rows()
if ARGV[5] ~= '' then
  drop_unlisted(node_id, settings.binding_grace_ms, now)
  if (known.roster_edits or '0') == ARGV[4] then redis.call('HSET', node, 'roster_digest', ARGV[5]) end
end
close_clock(now)
return { 'applied' }
