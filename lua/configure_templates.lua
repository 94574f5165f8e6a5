-- configure_templates.lua: declares the templates of a replica's configuration, and forgets those that left it.
-- Guarantee: as for nodes (configure_nodes.lua), the configuration of the highest revision stands, and of two with the
--            same revision none forgets what the other declares while another replica is alive. What was declared
--            otherwise, or learned, is not forgotten.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2]: replica_id
-- ARGV[3]: revision  of this configuration
-- ARGV[4]: declared_count  how many triples follow
-- ARGV[5..]: templates  template_id, cpu_count, memory_mb, …; then ids that this configuration does not declare
-- Reply: {'configured', {template_id, …} forgotten, {template_id, …} that stay because another replica is alive}
--        {'outdated', revision of the ledger's settings} | {'full', limit} | {'uninitialised'} | {'unknown', what, found}
-- Cost: O(changes log templates)
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/clock"
-- @include "include/settings"
-- @include "include/learning"
-- @include "include/members"

local _, refused = read_settings()
if refused then return refused end
local now = open_clock(ARGV[1])
local revision, declared_end = tonumber(ARGV[3]), 4 + 3 * tonumber(ARGV[4])
local in_force = redis.call('HGET', KEYS[1], 'revision')
if tonumber(in_force) > revision then return { 'outdated', in_force } end

local new = 0
for index = 5, declared_end, 3 do
  if not redis.call('ZSCORE', key('templates'), ARGV[index]) then new = new + 1 end
end
if new > 0 and redis.call('ZCARD', key('templates')) + new > TEMPLATES_MAX then
  return { 'full', integer(TEMPLATES_MAX) }
end

local shared = #ARGV > declared_end and others_alive(ARGV[2], now)
local gone, kept = {}, {}
for index = 5, declared_end, 3 do
  write_template(ARGV[index], ARGV[index + 1], ARGV[index + 2], 'declared', revision)
end
for index = declared_end + 1, #ARGV do
  local template_id = ARGV[index]
  local found = redis.call('HMGET', key('template:' .. template_id), 'source', 'configured')
  local configured_at = tonumber(found[2] or '')
  if configured_at and configured_at == revision and shared then
    kept[#kept + 1] = template_id
  elseif not found[1] or (configured_at and configured_at <= revision) then -- not found[1]: half forgotten
    redis.call('DEL', key('template:' .. template_id))
    redis.call('ZREM', key('templates'), template_id)
    gone[#gone + 1] = template_id
  end
end
return { 'configured', gone, kept }
