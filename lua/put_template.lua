-- put_template.lua: declares what creating from a template takes.
-- Guarantee: a declared size is never overwritten by a learned one; the number of templates is bounded.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2]: template_id
-- ARGV[3]: cpu_count
-- ARGV[4]: memory_mb  MiB
-- Reply: {'declared'} | {'full', limit} | {'uninitialised'} | {'unknown', what, found}
-- Cost: O(log templates)
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/clock"
-- @include "include/settings"
-- @include "include/learning"

local _, refused = read_settings()
if refused then return refused end
open_clock(ARGV[1])
if not redis.call('ZSCORE', key('templates'), ARGV[2]) and redis.call('ZCARD', key('templates')) >= TEMPLATES_MAX then
  return { 'full', integer(TEMPLATES_MAX) }
end
write_template(ARGV[2], ARGV[3], ARGV[4], 'declared')
return { 'declared' }
