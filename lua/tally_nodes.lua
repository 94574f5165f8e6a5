-- tally_nodes.lua: how many nodes have which status, and how full those are that take creations, a slice at a time.
-- Guarantee: writes nothing; reservations whose deadline has passed count until they are swept, moments later.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2]: after  the last id of the slice before, '' starts at the first
-- Reply: {'tally', next after ('': that was all), {status, count, … of nodes that reported}, nodes of unknown capacity,
--         {CPUs: capacity, allocated, reserved, free, the most free on one node}, {bytes of memory: the same},
--         node_id, pending cpu, pending bytes, pending count, …}  of the first slice all nodes, later those with any
--        {'uninitialised'} | {'unknown', what, found}
-- Cost: O(slice), 200 nodes
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/clock"
-- @include "include/settings"
-- @include "include/node_view"
local SLICE = 200

local settings, refused = read_settings()
if refused then return refused end
local now = open_clock(ARGV[1])
local first = ARGV[2] == ''
local node_ids = redis.call('ZRANGEBYLEX', key('nodes'), first and '-' or '(' .. ARGV[2], '+', 'LIMIT', 0, SLICE)
local texts = #node_ids > 0 and redis.call('HMGET', key('loads'), unpack(node_ids)) or {}

local counts, unknown = {}, 0
local cpu, memory = { 0, 0, 0, 0, 0 }, { 0, 0, 0, 0, 0 }

-- `most`: what a limit of node_resource_limit bounds the load to, -1 for no bound.
local function add(sums, capacity, load, pending, most, closed)
  if capacity < 0 then return end
  local free = capacity - load - pending
  if most and most >= 0 then free = math.min(free, most - load - pending) end
  if closed or free < 0 then free = 0 end
  sums[1], sums[2], sums[3], sums[4] = sums[1] + capacity, sums[2] + load, sums[3] + pending, sums[4] + free
  sums[5] = math.max(sums[5], free)
end

local reply = { 'tally', #node_ids == SLICE and node_ids[SLICE] or '', {}, '', {}, {} }
for index, node_id in ipairs(node_ids) do
  local row = texts[index] and parse_row(texts[index])
  if row then
    local found = redis.call('HMGET', node_key(node_id), 'last_seen_ms', 'discovery', 'status')
    if found[1] then
      local known = { last_seen_ms = found[1], discovery = found[2] or nil, status = found[3] or nil }
      local status = derived_status(known, now, settings.report_ttl_ms)
      counts[status] = (counts[status] or 0) + 1
    end
    local pool = node_pools.facts(row.pool)
    if pool.silent then
      if row.cpu_capacity < 0 or row.memory_capacity < 0 then unknown = unknown + 1 end
      local closed = pool.against == 'over_limit' or (row.bounded and row.count_most >= 0
        and row.starting + row.running + row.pending_count >= row.count_most)
      add(cpu, row.cpu_capacity, row.cpu_load, row.pending_cpu, row.cpu_most, closed)
      add(memory, row.memory_capacity, row.memory_load, row.pending_memory, row.memory_most, closed)
    end
    if first or row.pending_count > 0 or row.pending_cpu > 0 or row.pending_memory > 0 then
      local pending = { integer(row.pending_cpu), integer(row.pending_memory), integer(row.pending_count) }
      for _, fact in ipairs({ node_id, unpack(pending) }) do
        reply[#reply + 1] = fact
      end
    end
  end
end
for status, count in pairs(counts) do
  reply[3][#reply[3] + 1], reply[3][#reply[3] + 2] = status, integer(count)
end
reply[4] = integer(unknown)
for index = 1, 5 do reply[5][index], reply[6][index] = integer(cpu[index]), integer(memory[index]) end
return reply
