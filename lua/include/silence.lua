-- @include "include/rows"
-- Which pool a node belongs to, and noticing that one fell silent.
local SILENCE_SLICE = 1024

-- Draining first, told by discovery or by the node's last report, silent or not; then the age of that report,
-- then what else the node says of itself.
local function pool_of(discovery, status, over_limit, stale)
  if discovery == 'lingering' or status == 'lingering' then return 'l' end
  if stale or status == 'unhealthy' then return over_limit and 'x' or 'u' end
  if over_limit then return 'o' end
  return status == 'ready' and 'r' or 'c'
end

-- Of a node known before the ledger was lost and not heard of since: what it held then is no ground to admit.
local function waiting_pool(pool)
  return (pool == 'r' or pool == 'c' or pool == 'u') and 'w' or pool
end

-- Moves overdue nodes out of the fresh ones; how many. As many as the slice: more may be due.
local function retire_silent(now, report_ttl_ms, binding_ttl_ms)
  local overdue = redis.call('ZRANGEBYSCORE', key('seen'), '-inf', '(' .. integer(now - report_ttl_ms),
    'WITHSCORES', 'LIMIT', 0, SILENCE_SLICE)
  for index = 1, #overdue, 2 do
    local node_id, last_seen = overdue[index], overdue[index + 1]
    redis.call('ZREM', key('seen'), node_id)
    redis.call('ZADD', key('silent'), last_seen, node_id)
    redis.call('ZADD', key('forgotten'), tonumber(last_seen) + binding_ttl_ms, node_id)
    local row = row_of(node_id)
    if row then
      if row.pool == 'r' or row.pool == 'c' then row.pool = 'u' end
      if row.pool == 'o' then row.pool = 'x' end
    end
  end
  return #overdue / 2
end
