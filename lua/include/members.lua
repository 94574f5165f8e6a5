-- @include "include/keys"
-- The replicas of this ledger.

-- Whether replicas other than this one have sent a keepalive that has not expired.
local function others_alive(replica_id, now)
  local alive = redis.call('ZRANGEBYSCORE', key('replicas'), '(' .. integer(now), '+inf', 'LIMIT', 0, 2)
  for _, found in ipairs(alive) do
    if found ~= replica_id then return true end
  end
  return false
end
