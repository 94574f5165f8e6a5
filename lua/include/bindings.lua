-- @include "include/reservations"
-- Which node a sandbox runs on.
--   bindings[sandbox]        '<recorded_at_ms> <node id>'
--   node:<id>:sandboxes      what the node's last roster listed
--   node:<id>:assigned, assigned   recorded but not listed yet, by when they were recorded
-- A binding carries no TTL to refresh: it is valid until binding_ttl after the later of its
-- recording and the last report of a node that still lists it.

-- Whatever takes `sandbox_ids` handles them together, at most 500 in one call: a handful of commands
-- for a slice of a roster, not a handful for each of its sandboxes.

local function parse_binding(text)
  local recorded_at_ms, node_id = string.match(text, '^(%d+) (.*)$')
  return { node_id = node_id, recorded_at_ms = tonumber(recorded_at_ms) }
end

local function binding_of(sandbox_id)
  local text = redis.call('HGET', key('bindings'), sandbox_id)
  return text and parse_binding(text) or nil
end

local function is_listed(node_id, sandbox_id)
  return redis.call('SISMEMBER', node_key(node_id, 'sandboxes'), sandbox_id) == 1
end

-- The sandboxes by the node that each is bound to; those bound to none under `unbound`.
local function by_holder(sandbox_ids, unbound)
  local held = {}
  for index, text in ipairs(redis.call('HMGET', key('bindings'), unpack(sandbox_ids))) do
    local holder = text and parse_binding(text).node_id or unbound
    held[holder] = held[holder] or {}
    held[holder][#held[holder] + 1] = sandbox_ids[index]
  end
  return held
end

-- Takes sandboxes out of a node's last roster. The stored digest no longer describes that roster,
-- so the node's next report is applied as a difference again.
local function unlist(node_id, sandbox_ids)
  if redis.call('SREM', node_key(node_id, 'sandboxes'), unpack(sandbox_ids)) > 0
    and redis.call('EXISTS', node_key(node_id)) == 1 then
    redis.call('HDEL', node_key(node_id), 'roster_digest')
    redis.call('HINCRBY', node_key(node_id), 'roster_edits', 1)
  end
end

local function forget_assignments(node_id, sandbox_ids)
  redis.call('ZREM', node_key(node_id, 'assigned'), unpack(sandbox_ids))
  redis.call('ZREM', key('assigned'), unpack(sandbox_ids))
end

-- Deletes the bindings that still point to that node.
local function unbind(node_id, sandbox_ids)
  if #sandbox_ids == 0 then return end
  unlist(node_id, sandbox_ids)
  local own = by_holder(sandbox_ids, node_id)[node_id]
  if not own then return end
  redis.call('HDEL', key('bindings'), unpack(own))
  forget_assignments(node_id, own)
end

-- Records an assignment; the last one wins, whoever held the sandbox before.
local function bind(node_id, sandbox_id, now)
  local earlier = binding_of(sandbox_id)
  if earlier and earlier.node_id ~= node_id then
    unlist(earlier.node_id, { sandbox_id })
    forget_assignments(earlier.node_id, { sandbox_id })
  end
  redis.call('HSET', key('bindings'), sandbox_id, integer(now) .. ' ' .. node_id)
  if not is_listed(node_id, sandbox_id) then
    redis.call('ZADD', node_key(node_id, 'assigned'), integer(now), sandbox_id)
    redis.call('ZADD', key('assigned'), integer(now), sandbox_id)
  end
end

-- A node's roster newly lists these: they are its from now on, whoever held them before.
local function bind_listed(node_id, sandbox_ids, now)
  if #sandbox_ids == 0 then return end
  redis.call('SADD', node_key(node_id, 'sandboxes'), unpack(sandbox_ids))
  local value = integer(now) .. ' ' .. node_id
  for holder, held in pairs(by_holder(sandbox_ids, '')) do
    if holder == node_id then
      forget_assignments(node_id, held)
    else
      if holder ~= '' then
        unlist(holder, held)
        forget_assignments(holder, held)
      end
      local bound = {}
      for _, sandbox_id in ipairs(held) do bound[#bound + 1], bound[#bound + 2] = sandbox_id, value end
      redis.call('HSET', key('bindings'), unpack(bound))
    end
  end
end

-- Bindings recorded long enough ago that a roster without them is no accident of timing.
local function drop_unlisted(node_id, binding_grace_ms, now)
  unbind(node_id, redis.call('ZRANGEBYSCORE', node_key(node_id, 'assigned'), '-inf',
    integer(now - binding_grace_ms), 'LIMIT', 0, 500))
end

-- Until when a lookup may trust a binding. `last_seen_ms` nil: the node never reported.
local function valid_until(binding, sandbox_id, last_seen_ms, binding_ttl_ms)
  local since = binding.recorded_at_ms
  if last_seen_ms and last_seen_ms > since and is_listed(binding.node_id, sandbox_id) then since = last_seen_ms end
  return since + binding_ttl_ms
end
