-- @include "include/keys"
-- While a lost ledger is being rebuilt, what is missing may only be missing yet.
local function missing(now)
  local until_ms = tonumber(redis.call('HGET', KEYS[1], 'rebuilding_until_ms') or '') or 0
  return { 'missing', until_ms > now and '1' or '0' }
end
