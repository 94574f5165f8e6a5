-- @include "include/keys"
-- @include "include/format"
-- @include "include/strategies"
-- The settings that every script needs, as they are kept, and after them others that the caller names. `affinity_slack` is
-- a number where affinity is on.
local function read_stored(...)
  return redis.call('HMGET', KEYS[1], 'format', 'strategy', 'admission', 'group_placement', 'report_ttl_ms',
    'placement_reservation_ttl_ms', 'overcommit_cpu', 'overcommit_memory', 'locality_enabled', 'refresh_after', 'limited',
    'gated_until_ms', 'fill_to', 'affinity_slack', 'scarce', ...)
end
