-- read_nodes.lua: nodes as they look at this moment, one by id or a page of all in id order.
-- Guarantee: statuses are derived on one clock; promises whose deadline has passed do not show.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2]: node_id  '' for a page
-- ARGV[3]: after  the last id of the page before, '' starts at the first
-- ARGV[4]: limit
-- Reply: {'nodes', {node_id, {fields}, status, reason, cpu pressure, memory pressure, pending cpu, pending bytes, pending count}, …}
--        {'again'} | {'uninitialised'} | {'unknown', what, found}
-- Errors: none
-- Cost: O(limit)
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/clock"
-- @include "include/settings"
-- @include "include/reservations"
-- @include "include/node_view"

local settings, refused = read_settings()
if refused then return refused end
local now = open_clock(ARGV[1])
if redis.call('ZCOUNT', key('expiry'), '-inf', integer(now)) > 0 then
  local swept = expire_due(now, EXPIRY_SLICE) < EXPIRY_SLICE
  save_rows()
  if not swept then return { 'again', 'expiry' } end
end
local node_ids
if ARGV[2] ~= '' then
  node_ids = { ARGV[2] }
else
  node_ids = redis.call('ZRANGEBYLEX', key('nodes'), ARGV[3] == '' and '-' or '(' .. ARGV[3], '+', 'LIMIT', 0, ARGV[4])
end
local demand = demand_of(true, 0, 0, 'any')
local reply = { 'nodes' }
for _, node_id in ipairs(node_ids) do
  local row = row_of(node_id)
  if row then
    local fields = redis.call('HGETALL', node_key(node_id))
    local known = as_table(fields)
    -- Whatever else is half-way between being listed and not.
    if known.discovery == 'active' or known.discovery == 'lingering' then
      local cpu, memory = pressures(row, demand)
      reply[#reply + 1] = {
        node_id, fields, derived_status(known, now, settings.report_ttl_ms), standing(row, known, demand, settings, now),
        cpu, memory, integer(row.pending_cpu), integer(row.pending_memory), integer(row.pending_count),
      }
    end
  end
end
return reply
