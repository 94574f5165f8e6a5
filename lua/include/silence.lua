-- @include "include/rows"
-- @include "include/pools"
-- Noticing that a node fell silent.
local SILENCE_SLICE = 64

-- Moves overdue nodes out of the fresh ones, a slice of them; how many. As many as the slice: more may be due.
local function retire_silent(now, report_ttl_ms, binding_ttl_ms)
  local overdue = redis.call('ZRANGEBYSCORE', key('seen'), '-inf', '(' .. integer(now - report_ttl_ms),
    'WITHSCORES', 'LIMIT', 0, SILENCE_SLICE)
  for index = 1, #overdue, 2 do
    local node_id, last_seen = overdue[index], overdue[index + 1]
    redis.call('ZREM', key('seen'), node_id)
    redis.call('ZADD', key('silent'), last_seen, node_id)
    redis.call('ZADD', key('forgotten'), tonumber(last_seen) + binding_ttl_ms, node_id)
    local row = row_of(node_id)
    if row then row.pool = node_pools.facts(row.pool).silent or row.pool end
  end
  return #overdue / 2
end
