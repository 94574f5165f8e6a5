-- @include "include/reservations"
-- Which node a sandbox runs on.
--   bindings[sandbox]        '<recorded_at_ms> <node id>'
--   node:<id>:sandboxes      what the node's last roster listed
--   node:<id>:assigned, assigned   recorded but not listed yet, by when they were recorded
-- A binding carries no TTL to refresh: it is valid until binding_ttl after the later of its
-- recording and the last report of a node that still lists it.

local function binding_of(sandbox_id)
  local text = redis.call('HGET', key('bindings'), sandbox_id)
  if not text then return nil end
  local recorded_at_ms, node_id = string.match(text, '^(%d+) (.*)$')
  return { node_id = node_id, recorded_at_ms = tonumber(recorded_at_ms) }
end

local function is_listed(node_id, sandbox_id)
  return redis.call('SISMEMBER', node_key(node_id, 'sandboxes'), sandbox_id) == 1
end

-- Takes a sandbox out of a node's last roster. The stored digest no longer describes that roster,
-- so the node's next report is applied as a difference again.
local function unlist_sandbox(node_id, sandbox_id)
  if redis.call('SREM', node_key(node_id, 'sandboxes'), sandbox_id) == 1
    and redis.call('EXISTS', node_key(node_id)) == 1 then
    redis.call('HDEL', node_key(node_id), 'roster_digest')
    redis.call('HINCRBY', node_key(node_id), 'roster_edits', 1)
  end
end

local function forget_assignment(node_id, sandbox_id)
  redis.call('ZREM', node_key(node_id, 'assigned'), sandbox_id)
  redis.call('ZREM', key('assigned'), sandbox_id)
end

-- Deletes the binding if it still points to that node.
local function unbind(node_id, sandbox_id)
  local binding = binding_of(sandbox_id)
  unlist_sandbox(node_id, sandbox_id)
  if binding and binding.node_id ~= node_id then return false end
  redis.call('HDEL', key('bindings'), sandbox_id)
  forget_assignment(node_id, sandbox_id)
  return binding ~= nil
end

-- Records an assignment; the last one wins, whoever held the sandbox before.
local function bind(node_id, sandbox_id, now)
  local earlier = binding_of(sandbox_id)
  if earlier and earlier.node_id ~= node_id then
    unlist_sandbox(earlier.node_id, sandbox_id)
    forget_assignment(earlier.node_id, sandbox_id)
  end
  redis.call('HSET', key('bindings'), sandbox_id, integer(now) .. ' ' .. node_id)
  if not is_listed(node_id, sandbox_id) then
    redis.call('ZADD', node_key(node_id, 'assigned'), integer(now), sandbox_id)
    redis.call('ZADD', key('assigned'), integer(now), sandbox_id)
  end
end

-- Bindings recorded long enough ago that a roster without them is no accident of timing.
local function drop_unlisted(node_id, binding_grace_ms, now)
  local overdue = redis.call('ZRANGEBYSCORE', node_key(node_id, 'assigned'), '-inf',
    integer(now - binding_grace_ms), 'LIMIT', 0, 500)
  for _, sandbox_id in ipairs(overdue) do unbind(node_id, sandbox_id) end
end

-- Until when a lookup may trust a binding. `last_seen_ms` nil: the node never reported.
local function valid_until(binding, sandbox_id, last_seen_ms, binding_ttl_ms)
  local since = binding.recorded_at_ms
  if last_seen_ms and last_seen_ms > since and is_listed(binding.node_id, sandbox_id) then since = last_seen_ms end
  return since + binding_ttl_ms
end
