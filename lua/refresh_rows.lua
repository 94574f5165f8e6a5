-- refresh_rows.lua: brings one slice of rows to the settings in force, idle nodes included.
-- Guarantee: placements wait until all rows are current, so none is decided on old capacities or limits.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- Reply: {'refreshed', more (1|0)} | {'uninitialised'} | {'unknown', what, found}
-- Cost: O(48 nodes)
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/clock"
-- @include "include/settings"
-- @include "include/observe"
-- @include "include/capacities"
local SLICE = 48

local settings, refused = read_settings()
if refused then return refused end
if not settings.refresh_after then return { 'refreshed', '0' } end
local now = open_clock(ARGV[1])
local observation = read_observation_settings()
local unheard_since_ms = tonumber(redis.call('HGET', KEYS[1], 'unheard_since_ms') or '') or -1
local from = settings.refresh_after == '' and '-' or '(' .. settings.refresh_after
local node_ids = redis.call('ZRANGEBYLEX', key('nodes'), from, '+', 'LIMIT', 0, SLICE)
for _, node_id in ipairs(node_ids) do
  local figures, row = read_figures(node_id), row_of(node_id)
  local known = as_table_of(node_key(node_id), 'discovery', 'status', 'waiting')
  if row and not figures then bound_row(row, nil, observation) end
  if figures and row then
    local stale = now - figures.last_seen_ms > settings.report_ttl_ms
    local over_limit = observe(row, known.discovery, known.status, figures, stale, observation)
    redis.call('HSET', node_key(node_id), 'over_limit', over_limit or '')
    -- A longer report_ttl may make it fresh again; then it must be able to fall silent again.
    if not stale and redis.call('ZREM', key('silent'), node_id) == 1 then
      redis.call('ZADD', key('seen'), integer(figures.last_seen_ms), node_id)
      redis.call('ZREM', key('forgotten'), node_id)
    end
    if known.waiting or figures.last_seen_ms <= unheard_since_ms then
      redis.call('HSET', node_key(node_id), 'waiting', 1)
      row.pool = node_pools.while_waiting(row.pool)
    end
  end
end
save_rows()
-- Those of rows that did not change too: an older format kept no capacities, or no index by rows.
for _, node_id in ipairs(node_ids) do
  local row = row_of(node_id)
  if row then
    enter_capacity(node_id, row)
    resources.note_free(node_id, nil, row)
    local place = cpu_rows.place_of(row, node_id)
    cpu_rows.move(node_id, place, place, rows[node_id].text)
  end
end
if #node_ids == SLICE then
  redis.call('HSET', KEYS[1], 'refresh_after', node_ids[SLICE])
  return { 'refreshed', '1' }
end
redis.call('HDEL', KEYS[1], 'refresh_after')
return { 'refreshed', '0' }
