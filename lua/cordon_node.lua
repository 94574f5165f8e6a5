-- cordon_node.lua: keeps new sandboxes off a node, or lets them on again, for as long as its present instance runs.
-- Guarantee: an instance that is not the one reporting is neither cordoned nor uncordoned; reports of this instance keep
--            the cordon, one of another ends it, and so does an unregister. What a replica puts back after a loss changes
--            no node that has reported since, unless the replica itself was told so.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2]: node_id
-- ARGV[3]: service_instance_id  of the process that reports
-- ARGV[4]: cordoned  '1' or '0'
-- ARGV[5]: put_back  '' | 'remembered' | 'told': a replica that puts back a lost ledger remembers it, or was itself told
--          it last
-- Reply: {'cordoned' | 'uncordoned', changed}: '0' when it was so before
--        {'unobserved'}: not listed, or it never reported | {'mismatch', reporting instance}
--        {'uninitialised'} | {'unknown', what, found} | {'not_rebuilt', ms, of what}
-- Cost: O(log nodes)
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/clock"
-- @include "include/settings"
-- @include "include/rows"
-- @include "include/rebuilding"

local settings, refused = read_settings()
if refused then return refused end
local now = open_clock(ARGV[1])
local put_back = ARGV[5]
local gated = put_back == '' and not_rebuilt(settings.gated_until_ms, now)
if gated then return gated end
local node_id, instance, node = ARGV[2], ARGV[3], node_key(ARGV[2])
local known = as_table_of(node, 'discovery', 'status', 'told_status', 'over_limit', 'last_seen_ms', 'waiting',
  'service_instance_id', 'cordoned')
local wanted = ARGV[4] == '1'
local changed = (known.cordoned == instance) ~= wanted
local answer = { wanted and 'cordoned' or 'uncordoned', changed and '1' or '0' }
local row = row_of(node_id)
if not row or (known.discovery ~= 'active' and known.discovery ~= 'lingering') then return { 'unobserved' } end
if not known.last_seen_ms then
  if put_back == '' then return { 'unobserved' } end
  -- The first report of this instance finds its cordon; one of another ends it.
  if wanted then
    redis.call('HSET', node, 'cordoned', instance)
  else
    redis.call('HDEL', node, 'cordoned')
  end
  close_clock(now)
  return answer
end
if put_back == 'remembered' then return { known.cordoned and 'cordoned' or 'uncordoned', '0' } end
if known.service_instance_id ~= instance then return { 'mismatch', known.service_instance_id } end

-- A cordoned node shows and counts as one that reports that it drains; what it does report is kept beside.
local status = known.cordoned == instance and known.told_status or known.status
if wanted then
  redis.call('HSET', node, 'cordoned', instance, 'told_status', status, 'status', 'lingering', 'still', '')
  status = 'lingering'
else
  redis.call('HSET', node, 'status', status)
  redis.call('HDEL', node, 'cordoned', 'told_status')
end
local stale = now - tonumber(known.last_seen_ms) > settings.report_ttl_ms
row.pool = node_pools.of(known.discovery, status, known.over_limit ~= nil and known.over_limit ~= '', stale)
if known.waiting then row.pool = node_pools.while_waiting(row.pool) end
save_rows()
close_clock(now)
return answer
