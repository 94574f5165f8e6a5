-- @include "include/keys"
-- @include "include/reply"
-- Which images and templates each node was given last, as placements tell: what it need not fetch again.
--   warm:<image or template>   zset: node → the ledger's sequence when a sandbox of it was placed there last
--   node:<id>:warm             zset: image or template → the same; at most affinity.keys_per_node, the least recent goes
-- The node's own list is written first and shortened last, so that it leads to every entry, whatever is stopped in between.
local warm_keys = {}
do
  local counted = {}

  local function drop(node_id, origins)
    for _, origin in ipairs(origins) do
      redis.call('ZREM', key('warm:' .. origin), node_id)
      redis.call('ZREM', node_key(node_id, 'warm'), origin)
    end
  end

  -- Placements on a node that had the image or template already, and on others.
  local function count(found, by)
    redis.call('HINCRBY', key('stats'), 'affinity_' .. found, by)
    if warm_keys.before then counted[found] = (counted[found] or 0) + by end
  end

  -- A sandbox of `origin` was placed on the node; `holds`: as its artifacts tell. What was there before is kept for `undo`
  -- where `warm_keys.before` is a table.
  function warm_keys.note(node_id, origin, sequence, holds)
    local own, before = node_key(node_id, 'warm'), warm_keys.before
    if before and not before[node_id] then before[node_id] = redis.call('ZRANGE', own, '0', '-1', 'WITHSCORES') end
    warm_keys.most = warm_keys.most or tonumber(redis.call('HGET', KEYS[1], 'affinity_keys_per_node'))
    local added = redis.call('ZADD', own, sequence, origin)
    count(added == 1 and not holds and 'cold' or 'warm', 1)
    redis.call('ZADD', key('warm:' .. origin), sequence, node_id)
    local beyond = added == 1 and redis.call('ZCARD', own) - warm_keys.most or 0
    if beyond > 0 then drop(node_id, redis.call('ZRANGE', own, '0', integer(beyond - 1))) end
  end

  -- The node would not create what was placed there at `sequence`: unless it was given another one since, nothing says
  -- any longer that it holds it.
  function warm_keys.refuse(node_id, origin, sequence)
    local last = redis.call('ZSCORE', node_key(node_id, 'warm'), origin)
    if last and tonumber(last) == tonumber(sequence) then drop(node_id, { origin }) end
  end

  function warm_keys.forget(node_id)
    drop(node_id, redis.call('ZRANGE', node_key(node_id, 'warm'), '0', '-1'))
  end

  -- Takes back all that was noted since `warm_keys.before` was set.
  function warm_keys.undo()
    for found, by in pairs(counted) do count(found, -by) end
    for node_id, entries in pairs(warm_keys.before or {}) do
      warm_keys.forget(node_id)
      for index = 1, #entries, 2 do
        redis.call('ZADD', node_key(node_id, 'warm'), entries[index + 1], entries[index])
        redis.call('ZADD', key('warm:' .. entries[index]), entries[index + 1], node_id)
      end
    end
  end
end
