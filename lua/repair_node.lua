-- repair_node.lua: makes anew what the ledger derives for one node, from the node's hash and its reservations.
-- Guarantee: takes nothing from a reservation that is open; afterwards the row holds what they hold.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2]: node_id
-- Reply: {'repaired'} | {'uninitialised'} | {'unknown', what, found}
-- Cost: O(open reservations of the node + its roster, up to 2,000 ids)
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/clock"
-- @include "include/settings"
-- @include "include/observe"
-- @include "include/reservations"
-- @include "include/pending"
-- @include "include/recount_account"
-- @include "include/capacities"
-- @include "include/artifacts"
-- @include "include/cpu_configs"
-- @include "include/mend_cpu_config"
-- @include "include/labels"

local settings, refused = read_settings()
if refused then return refused end
local now, node_id = open_clock(ARGV[1]), ARGV[2]
local known = as_table_of(node_key(node_id), 'discovery', 'status', 'last_seen_ms', 'waiting')
local discovered = known.discovery == 'active' or known.discovery == 'lingering'

local function is_open_here(id)
  local found = redis.call('HMGET', reservation_key(id), 'state', 'node_id', 'sandbox_id')
  return (found[1] == 'pending' or found[1] == 'confirmed') and found[2] == node_id, found[3]
end

-- Entries of lists that a stopped script left behind.
local function clear_lists()
for _, cpu_capacity in ipairs(redis.call('ZRANGE', key('capacities'), 0, -1)) do
  leave_capacity(node_id, tonumber(cpu_capacity))
end
  local claims = redis.call('HGETALL', node_key(node_id, 'claims'))
  for index = 1, #claims, 2 do
    local open, sandbox_id = is_open_here(claims[index + 1])
    local may_begin = redis.call('HEXISTS', node_key(node_id, 'doubts'), claims[index + 1]) == 1
    if not (open or may_begin) or sandbox_id ~= claims[index] then
      redis.call('HDEL', node_key(node_id, 'claims'), claims[index])
    end
  end
  for _, id in ipairs(redis.call('HKEYS', node_key(node_id, 'unnamed'))) do
    local open, sandbox_id = is_open_here(id)
    if not open or sandbox_id then redis.call('HDEL', node_key(node_id, 'unnamed'), id) end
  end
  for _, id in ipairs(redis.call('ZRANGE', node_key(node_id, 'finished'), 0, 999)) do
    local state, at = unpack(redis.call('HMGET', reservation_key(id), 'state', 'node_id'))
    if not state or at ~= node_id or state == 'pending' or state == 'confirmed' then
      redis.call('ZREM', node_key(node_id, 'finished'), id)
    end
  end
  for _, id in ipairs(redis.call('ZRANGE', node_key(node_id, 'acknowledged'), 0, -1)) do
    local found = redis.call('HMGET', reservation_key(id), 'state', 'reason', 'sandbox_id')
    if found[1] ~= 'settled' or found[2] ~= 'counters' or found[3] then
      redis.call('ZREM', node_key(node_id, 'acknowledged'), id)
    end
  end
end

local function repair_row()
  local figures, row = read_figures(node_id), new_row(node_id)
  labelling.apply(node_id)
  local stale = figures ~= nil and now - figures.last_seen_ms > settings.report_ttl_ms
  local over_limit = observe(row, known.discovery, known.status, figures, stale, read_observation_settings())
  if known.waiting then row.pool = node_pools.while_waiting(row.pool) end
  if figures then
    redis.call('HSET', node_key(node_id), 'over_limit', over_limit or '')
    redis.call('ZREM', key(stale and 'seen' or 'silent'), node_id)
    redis.call('ZADD', key(stale and 'silent' or 'seen'), integer(figures.last_seen_ms), node_id)
  else
    redis.call('ZREM', key('seen'), node_id)
    redis.call('ZREM', key('silent'), node_id)
  end
  local belongs = {}
  for _, name in ipairs(node_pools.sets(pool_letter(row), row.labels)) do belongs[name] = true end
  for _, name in ipairs(node_pools.all_parts()) do
    if not belongs[name] then redis.call('ZREM', key(name), node_id) end
  end
  for name in pairs(belongs) do redis.call('ZADD', key(name), 0, node_id) end
end

-- A node is watched as long as it is at a level.
local function repair_avoidance()
  -- @inline "include/avoidance"
  local level = redis.call('HGET', node_key(node_id), 'avoid_level')
  if not level or not redis.call('ZSCORE', key('avoided_until'), node_id) then forgive(node_id) end
end

local function repair_account()
  local account = account_of(node_id)
  local counted = account and sums_of_roster(node_id, account)
  for name, value in pairs(counted or {}) do account[name] = value end
end

clear_lists()
-- As long as record_events remembers events.
if redis.call('PTTL', node_key(node_id, 'explained')) == -1 then
  redis.call('PEXPIRE', node_key(node_id, 'explained'), 600000)
end
if discovered then
  redis.call('ZADD', key('nodes'), 0, node_id)
  new_row(node_id)
  repair_avoidance()
  repair_account()
  repair_row()
  recount_pending(node_id, 1000000)
  weigh_again(node_id)
  save_rows()
  enter_capacity(node_id, row_of(node_id))
  resources.note_free(node_id, nil, row_of(node_id))
  mend_cpu_config(node_id, known.last_seen_ms ~= nil)
  local place = cpu_rows.place_of(row_of(node_id), node_id)
  cpu_rows.move(node_id, place, place, rows[node_id].text)
else
  for _, name in ipairs({ 'nodes', 'configured', 'seen', 'silent', 'avoided_until' }) do
    redis.call('ZREM', key(name), node_id)
  end
  for _, name in ipairs(node_pools.all_parts()) do redis.call('ZREM', key(name), node_id) end
  for _, id in ipairs(redis.call('ZRANGE', node_key(node_id, 'reservations'), 0, -1)) do
    local open = as_table_of(reservation_key(id), 'state', 'node_id')
    if open.node_id ~= node_id or not is_open(open.state) then
      redis.call('ZREM', node_key(node_id, 'reservations'), id)
      redis.call('HDEL', node_key(node_id, 'unnamed'), id)
    end
  end
  forget_artifacts(node_id)
  -- @inline "include/warm_keys"
  warm_keys.forget(node_id)
  withdraw_cpu_config(node_id)
  redis.call('PEXPIRE', node_key(node_id, 'cpu_config'), KEPT_MS)
  drop_row(node_id)
  save_rows()
  if redis.call('PTTL', node_key(node_id)) == -1 then redis.call('PEXPIRE', node_key(node_id), KEPT_MS) end
  redis.call('ZADD', key('removed'), integer(now + settings.report_ttl_ms), node_id)
  redis.call('ZADD', key('forgotten'), integer(now + settings.report_ttl_ms), node_id)
end
return { 'repaired' }
