-- @include "include/keys"
-- How ties and the fullest nodes are read from a row of the index: from Redis. Where many placements are planned before
-- any is written, include/row_plans puts other readers in these places, which know of what is planned. What a placement
-- seldom reads is in include/row_reads_more.
local row_reads = {
  -- Members and scores by rank.
  range = function(name, first, last) return redis.call('ZRANGE', name, first, last, 'WITHSCORES') end,
}
