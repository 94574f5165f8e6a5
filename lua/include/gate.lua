-- @include "include/keys"
-- @include "include/reply"
-- After a loss the ledger waits until every replica has restored what it remembers, or was silent for a lease: which
-- nodes had reservations is known only to the replica that has not restored them yet.
--   rebuild   replica → until when it is waited for; 0: it has restored
--             '': until when whoever joined after the members were last listed is waited for
--   settings, field gated_until_ms   the latest of these; no such field: nobody is waited for
local UNLISTED = ''

local function refresh_gate(now)
  local until_ms = 0
  local awaited = redis.call('HGETALL', key('rebuild'))
  for index = 2, #awaited, 2 do until_ms = math.max(until_ms, tonumber(awaited[index])) end
  if until_ms > now then
    redis.call('HSET', KEYS[1], 'gated_until_ms', integer(until_ms))
  else
    redis.call('HDEL', KEYS[1], 'gated_until_ms')
  end
  redis.call('PEXPIRE', key('rebuild'), 3600000)
  return math.max(0, until_ms - now)
end

-- Waits for these replicas as well, but for those that have restored already.
local function wait_for(replica_ids, now, lease_ms)
  for _, replica_id in ipairs(replica_ids) do
    if redis.call('HEXISTS', key('rebuild'), replica_id) == 0 then
      redis.call('HSET', key('rebuild'), replica_id, integer(now + lease_ms))
    end
  end
  return refresh_gate(now)
end

-- A replica that is waited for has more to restore within a lease, or nothing any more ('0').
local function hear_from(replica_id, until_ms, now)
  if redis.call('EXISTS', key('rebuild')) == 0 then return 0 end
  redis.call('HSET', key('rebuild'), replica_id, integer(until_ms))
  return refresh_gate(now)
end
