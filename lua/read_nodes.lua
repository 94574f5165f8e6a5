-- read_nodes.lua: nodes as they look at this moment: named ones, or a page of all in id order.
-- Guarantee: statuses are derived on one clock; reservations whose deadline has passed do not show. Looks at a bounded
--            number of nodes, of that status or not, and works off what is due on these alone.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2]: after  the last id of the page before, '' starts at the first
-- ARGV[3]: limit  how many to look at
-- ARGV[4]: status  '' for nodes of any
-- ARGV[5]: detail  'whole', 'figures' without what a node says of its machine, or its 'state' alone
-- ARGV[6..]: node_ids  these, in this order, instead of a page
-- Reply: {'nodes', last id looked at | '' (that was all, or all of those named), {node_id, {fields}, status, reason,
--         cpu pressure, memory pressure, pending cpu, pending bytes, pending count,
--         further resources as the row has them}, …}
--        {'again'} | {'uninitialised'} | {'unknown', what, found}
-- Cost: O(limit log nodes)
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/clock"
-- @include "include/settings"
-- @include "include/overdue"
-- @include "include/node_view"
-- @include "include/figures"

local settings, refused = read_settings()
if refused then return refused end
local now = open_clock(ARGV[1])
local limit, status, node_ids, last = tonumber(ARGV[3]), ARGV[4], {}, ''

-- The sets that hold the nodes of a status, once the silent ones are retired. Of a node over a limit, or known from before
-- a loss, the hash alone tells.
local SETS_OF = {
  ready = { 'ready', 'avoided_ready', 'over_limit', 'waiting' }, lingering = { 'lingering' },
  connecting = { 'candidates', 'avoided', 'over_limit', 'waiting' }, unhealthy = { 'unhealthy', 'lingering' },
}

-- The next ids of some sets, each once, in id order.
local function next_ids(sets)
  local found, from = {}, ARGV[2] == '' and '-' or '(' .. ARGV[2]
  for _, set in ipairs(sets) do
    for _, node_id in ipairs(redis.call('ZRANGEBYLEX', key(set), from, '+', 'LIMIT', 0, limit)) do
      found[#found + 1] = node_id
    end
  end
  if #sets > 1 then table.sort(found) end
  local full = #found >= limit
  for index = #found, limit + 1, -1 do found[index] = nil end
  return found, full and found[limit] or ''
end

if ARGV[6] then
  for index = 6, #ARGV do node_ids[#node_ids + 1] = ARGV[index] end
elseif status == '' then
  node_ids, last = next_ids({ 'nodes' })
else
  -- @inline "inline/notice_silence"
  node_ids, last = next_ids(SETS_OF[status] or {})
end
if redis.call('ZCOUNT', key('expiry'), '-inf', integer(now)) > 0 then
  local done = overdue.finish_on(node_ids, now)
  if not done then return { 'again', 'expiry' } end
  for index = #node_ids, done + 1, -1 do last, node_ids[index] = node_ids[index - 1], nil end
end

local FIELDS = {
  state = { 'discovery', 'status', 'last_seen_ms', 'avoided_until_ms', 'cordoned', 'told_status' },
}
FIELDS.figures = {
  'discovery', 'endpoint', 'status', 'last_seen_ms', 'generation', 'cluster_id', 'service_instance_id', 'version', 'commit',
  'p2p_backend', 'p2p_address', 'disks', 'avoided_until_ms', 'labels', 'labels_api', 'cordoned', 'told_status',
  unpack(FIGURES),
}

-- The fields of a node's hash, flat.
local function fields_of(node_id)
  local names = FIELDS[ARGV[5]]
  if not names then return redis.call('HGETALL', node_key(node_id)) end
  local found, fields = redis.call('HMGET', node_key(node_id), unpack(names)), {}
  for index, name in ipairs(names) do
    if found[index] then fields[#fields + 1], fields[#fields + 2] = name, found[index] end
  end
  return fields
end

local demand = demand_of({ creation = true, cpu = 0, memory_mb = 0 }, 'any')
local reply = { 'nodes', last }
for _, node_id in ipairs(node_ids) do
  local row = row_of(node_id)
  if row then
    local fields = fields_of(node_id)
    local known = as_table(fields)
    local shown = derived_status(known, now, settings.report_ttl_ms)
    -- Whatever else is half-way between being listed and not.
    if (known.discovery == 'active' or known.discovery == 'lingering') and (status == '' or shown == status) then
      local cpu, memory = pressures(row, demand)
      reply[#reply + 1] = {
        node_id, fields, shown, standing(row, known, demand, settings, now),
        cpu, memory, integer(row.pending_cpu), integer(row.pending_memory), integer(row.pending_count),
        row.resources and resources.row_text(row.resources) or '',
      }
    end
  end
end
return reply
