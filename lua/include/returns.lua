-- @include "include/observe"
-- @include "include/deadlines"
-- @include "include/counting"
-- What is left on nodes that discovery took off its list, and what they come back to.
local REMOVED_SLICE = 64

-- Reservations on a node that left discovery and did not come back in time, one slice of them.
-- Returns how many; fewer than a slice means that none is left.
local release_removed
do
  -- What a node reported before it was evicted counts no more, so a delete is accepted now, while its roster is not: what
  -- it lists when it is back is there, whatever was told. Returns how many.
  local function forget_deleted(node_id, now)
    local deleted = redis.call('ZRANGE', node_key(node_id, 'deleted'), 0, REMOVED_SLICE - 1)
    if not deleted[1] then return 0 end
    -- @inline "include/bindings"
    unbind(node_id, deleted, now)
    return #deleted
  end

  function release_removed(node_id, now)
    local ids = redis.call('ZRANGE', node_key(node_id, 'reservations'), 0, REMOVED_SLICE - 1)
    for _, id in ipairs(ids) do
      local reservation = read_reservation(id)
      if reservation and (reservation.state == 'pending' or reservation.state == 'confirmed') then
        end_when_due(reservation, now)
      else
        redis.call('ZREM', node_key(node_id, 'reservations'), id)
      end
    end
    local deleted = forget_deleted(node_id, now)
    if #ids < REMOVED_SLICE and deleted < REMOVED_SLICE then
      redis.call('ZREM', key('removed'), node_id)
      for _, sandbox_id in ipairs(redis.call('HKEYS', node_key(node_id, 'claims'))) do drop_claim(node_id, sandbox_id) end
      redis.call('DEL', node_key(node_id, 'acknowledged'), node_key(node_id, 'explained'), node_key(node_id, 'doubts'))
      local account = account_of(node_id)
      for _, name in ipairs(account and RECENT or {}) do account[name] = 0 end
    end
    return math.max(#ids, deleted)
  end
end

-- Before nodes are listed and have rows again. One that comes back too late comes back without what was reserved on it,
-- however far maintenance got; of others, what their open reservations still hold is counted. Some of it at a time: whether
-- all of it is done, for all of them. `endpoints`: node → where it will be.
local function settle_returns(node_ids, endpoints, now)
  local released, left = 0, recount.SLICE
  for _, node_id in ipairs(node_ids) do
    local evicted_at = redis.call('ZSCORE', key('removed'), node_id)
    if evicted_at and tonumber(evicted_at) <= now then released = released + release_removed(node_id, now) end
    if released >= REMOVED_SLICE then break end
  end
  save_rows()
  if released >= REMOVED_SLICE then return false end
  for _, node_id in ipairs(node_ids) do
    if left <= 0 then break end
    local discovery = redis.call('HGET', node_key(node_id), 'discovery')
    if discovery ~= 'active' and discovery ~= 'lingering'
      and redis.call('EXISTS', node_key(node_id, 'reservations')) == 1 then
      local account = account_of(node_id)
      if not account then
        -- Reservations were restored before their node is: its hash, with where it is, holds the count.
        redis.call('HSET', node_key(node_id), 'endpoint', endpoints[node_id])
        redis.call('PEXPIRE', node_key(node_id), RETENTION_MS)
        close_account(node_id)
        account = account_of(node_id)
      end
      left = left - recount.go_on(node_id, account, left)
    end
  end
  save_rows()
  return left > 0
end
