-- @include "include/keys"
-- @include "include/format"
-- @include "include/strategies"
-- The settings that every script needs, as they are kept, and after them others that the caller names. `affinity_slack` is
-- a number where affinity is on. `sums_counted_to`: how far the sums are counted anew (include/tallies); nil: they are not.
local sums_counted_to, gated_until
local function read_stored(...)
  local found = redis.call('HMGET', KEYS[1], 'format', 'strategy', 'admission', 'group_placement', 'report_ttl_ms',
    'placement_reservation_ttl_ms', 'overcommit_cpu', 'overcommit_memory', 'locality_enabled', 'refresh_after', 'limited',
    'gated_until_ms', 'fill_to', 'affinity_slack', 'scarce', 'sums_counted_to', ...)
  sums_counted_to, gated_until = found[16] or nil, found[12] or nil
  return found
end
