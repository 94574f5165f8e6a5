-- @include "include/observe"
-- @include "include/forget_observation"
-- @include "include/labels"
-- @include "include/reservations"
-- @include "include/artifacts"
-- @include "include/cpu_configs"
-- @include "include/returns"
-- What discovery does to a node: listed, moved, drained, taken out.

local list_node
do
  -- What settle_returns counted is pending on a returning node; to be called while its hash still has it.
  local function counted_pending(node_id)
    local account = account_of(node_id)
    local found = { cpu = 0, memory = 0, count = 0, further = {} }
    if account and account.recount_to > 0 then
      found.cpu, found.memory, found.count = account.recount_cpu, account.recount_memory, account.recount_count
      found.further = recount.resources(node_id, account) or {}
    end
    return found
  end

  -- The settings that bound creations on a node that has not reported, read once for all that are listed.
  local list_bounds

  -- Puts a node on the list, or changes its endpoint and state. `about`: further fields of its hash;
  -- `waiting` among them means it was known before the ledger was lost and may not admit yet.
  -- Once its row is saved, `note_listed` says so: whoever is stopped before lists it again.
  function list_node(node_id, endpoint, discovery, now, about)
    local node = node_key(node_id)
    local known = as_table_of(node, 'discovery', 'status', 'over_limit', 'last_seen_ms', 'waiting', 'last_heard_ms')
    local returning = known.discovery ~= 'active' and known.discovery ~= 'lingering'
    local pending = returning and counted_pending(node_id)
    if returning then
      redis.call('ZADD', key('nodes'), 0, node_id)
      redis.call('ZREM', key('removed'), node_id)
      -- Its observation is gone, but its sandboxes are still found by what it told before it left.
      local heard_ms = known.last_seen_ms or known.last_heard_ms
      if heard_ms then redis.call('HSET', node, 'last_heard_ms', heard_ms) end
      redis.call('PERSIST', node)
      forget_observation(node_id, { 'endpoint', 'discovery', 'last_heard_ms' })
      for field, value in pairs(about or {}) do redis.call('HSET', node, field, value) end
      known = { waiting = about and about.waiting }
    end
    redis.call('HSET', node, 'endpoint', endpoint)
    local row = new_row(node_id)
    if returning then
      row.pending_cpu, row.pending_memory, row.pending_count = pending.cpu, pending.memory, pending.count
      resources.set_pending(row, pending.further)
      list_bounds = list_bounds or read_observation_settings()
      observe(row, discovery, nil, nil, false, list_bounds)
      labelling.apply(node_id)
    end
    local report_ttl_ms = tonumber(redis.call('HGET', KEYS[1], 'report_ttl_ms'))
    local stale = known.last_seen_ms ~= nil and now - tonumber(known.last_seen_ms) > report_ttl_ms
    local over_limit = known.over_limit ~= nil and known.over_limit ~= ''
    row.pool = node_pools.of(discovery, known.status, over_limit, stale)
    if known.waiting then row.pool = node_pools.while_waiting(row.pool) end
  end
end

local function note_listed(node_id, discovery)
  redis.call('HSET', node_key(node_id), 'discovery', discovery)
  close_account(node_id)
end

local delist_nodes
do
  -- Takes a node off the list, once its row is gone. Its observation goes at once; what is reserved on it stays for one
  -- report_ttl, its bindings for binding_ttl, so that a flap frees nothing that is being created.
  local function delist_node(node_id, now, settings)
    local node = node_key(node_id)
    local known = as_table_of(node, 'last_seen_ms', 'last_heard_ms')
    forget_artifacts(node_id)
    -- @inline "include/warm_keys"
    warm_keys.forget(node_id)
    withdraw_cpu_config(node_id)
    redis.call('ZADD', key('removed'), integer(now + settings.report_ttl_ms), node_id)
    redis.call('ZADD', key('forgotten'), integer(now + settings.binding_ttl_ms), node_id)
    redis.call('HSET', node, 'discovery', 'removed', 'removed_at_ms', integer(now))
    if known.last_heard_ms and not known.last_seen_ms then redis.call('HSET', node, 'last_seen_ms', known.last_heard_ms) end
    redis.call('PEXPIRE', node, integer(math.max(settings.report_ttl_ms, settings.binding_ttl_ms) + 3600000))
    -- On the list until now: whoever is stopped before takes it off again.
    for _, set in ipairs({ 'avoided_until', 'seen', 'silent', 'nodes', 'configured' }) do
      redis.call('ZREM', key(set), node_id)
    end
    forget_observation(node_id, { 'endpoint', 'discovery', 'removed_at_ms', 'last_seen_ms' })
    redis.call('HDEL', node, 'labels_configured', 'labels_kubernetes')
  end

  -- Rows first, so that nothing is placed on a node that is half taken off.
  function delist_nodes(node_ids, now, settings)
    for _, node_id in ipairs(node_ids) do drop_row(node_id) end
    save_rows()
    for _, node_id in ipairs(node_ids) do delist_node(node_id, now, settings) end
  end
end
