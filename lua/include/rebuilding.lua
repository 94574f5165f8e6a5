-- @include "include/keys"
-- While a lost ledger is being rebuilt, what is missing may only be missing yet.
local function missing(now)
  local until_ms = tonumber(redis.call('HGET', KEYS[1], 'rebuilding_until_ms') or '') or 0
  return { 'missing', until_ms > now and '1' or '0' }
end

-- Nil, or the reply of a script that decides nothing yet, because replicas are still restoring what was lost (include/gate).
local function not_rebuilt(gated_until_ms, now)
  if not gated_until_ms or tonumber(gated_until_ms) <= now then return nil end
  return { 'not_rebuilt', integer(tonumber(gated_until_ms) - now), redis.call('HGET', KEYS[1], 'rebuild_of') or '' }
end
