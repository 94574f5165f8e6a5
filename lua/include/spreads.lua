-- @include "include/keys"
-- @include "include/tallies"
-- How many sandboxes with a spread key each node has. A reservation counts while it is open and no record of its sandbox
-- counts for it; a record counts from when a reservation with the key is told to have become it, until it is deleted.
--   spread:<key>   hash: node → how many
--   spreads        hash: key → how many in all
function tallies.count_spread(spread_key, node_id, by)
  local name = key('spread:' .. spread_key)
  if redis.call('HINCRBY', name, node_id, by) <= 0 then redis.call('HDEL', name, node_id) end
  if redis.call('HINCRBY', key('spreads'), spread_key, by) <= 0 then redis.call('HDEL', key('spreads'), spread_key) end
end

-- Makes a reservation count, or not any more; its field `spread_counted` says whether it does.
function tallies.count_reservation_spread(reservation, counts)
  if not reservation.spread or (reservation.spread_counted == '1') == counts then return end
  reservation.spread_counted = counts and '1' or '0'
  redis.call('HSET', reservation_key(reservation.reservation_id), 'spread_counted', reservation.spread_counted)
  tallies.count_spread(reservation.spread, reservation.node_id, counts and 1 or -1)
end
