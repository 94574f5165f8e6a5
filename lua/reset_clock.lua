-- reset_clock.lua: brings ledger time back to the server's clock, after that clock had been ahead for a while.
-- Guarantee: from the first call on time is the server's; nothing that is open ends earlier by it. What was due is
--            due later by the skew at most; sightings of nodes are brought back, so silence is noticed in time.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- Reply: {'reset', skew_ms that was taken back, nodes that were brought back}  call again until no node was
--        {'uninitialised'} | {'unknown', what, found}
-- Cost: one slice of at most 500 nodes
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/clock"
-- @include "include/settings"
local SLICE = 500

local _, refused = read_settings()
if refused then return refused end
local skew = tonumber(redis.call('HGET', key('rotations'), 'offset') or '0')
local now = read_clock(ARGV[1], nil, nil)
close_clock(now)
-- Signs of life from that time would outlive their replicas; those that live tell again within a second.
if skew > 0 then redis.call('DEL', key('replicas')) end
local ahead = redis.call('ZRANGEBYSCORE', key('seen'), '(' .. integer(now), '+inf', 'LIMIT', 0, SLICE)
for _, node_id in ipairs(ahead) do
  redis.call('HSET', node_key(node_id), 'last_seen_ms', integer(now))
  redis.call('ZADD', key('seen'), integer(now), node_id)
end
return { 'reset', integer(skew), integer(#ahead) }
