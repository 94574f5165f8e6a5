-- list_peers.lua: the ready nodes that take part in P2P, a slice at a time in id order.
-- Guarantee: readiness is judged on the server's clock.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2]: cluster_id  '' is any
-- ARGV[3]: backend  '' is any
-- ARGV[4]: exclude_node_id  '' excludes nobody
-- ARGV[5]: after  the last id of the slice before, '' starts at the first
-- Reply: {'peers', last id looked at ('': that was all), node_id, backend, address, …}
--        {'uninitialised'} | {'unknown', what, found}
-- Cost: O(nodes), 500 in one slice
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/clock"
-- @include "include/settings"
-- @include "include/artifacts"
local SLICE = 500

local settings, refused = read_settings()
if refused then return refused end
local report_ttl_ms = settings.report_ttl_ms
local now = open_clock(ARGV[1])
local node_ids = redis.call('ZRANGEBYLEX', key('nodes'), ARGV[5] == '' and '-' or '(' .. ARGV[5], '+', 'LIMIT', 0, SLICE)
local reply = { 'peers', #node_ids == SLICE and node_ids[SLICE] or '' }
for _, node_id in ipairs(node_ids) do
  if node_id ~= ARGV[4] then
    local backend, address = ready_peer(node_id, ARGV[2], ARGV[3], now, report_ttl_ms)
    if backend then
      reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = node_id, backend, address
    end
  end
end
return reply
