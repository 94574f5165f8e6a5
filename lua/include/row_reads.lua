-- @include "include/keys"
-- @include "include/integer"
-- How ties and the fullest nodes are read from a row of the index: from Redis. Where many placements are planned before
-- any is written, include/planned_reads puts other readers in these places, which know of what is planned. What a placement
-- seldom reads is in include/row_reads_more.
local row_reads = {
  -- The first two members, each with its score behind it.
  head = function(name) return redis.call('ZRANGE', name, '0', '1', 'WITHSCORES') end,

  -- Members and scores by rank.
  range = function(name, first, last) return redis.call('ZRANGE', name, first, last, 'WITHSCORES') end,

  -- The member whose turn it is, by its rank.
  at = function(name, rank)
    rank = integer(rank)
    return redis.call('ZRANGE', name, rank, rank)[1]
  end,
}
