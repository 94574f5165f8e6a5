-- @include "include/index"
-- What a search met in the index, against what the row of its node says.

-- Whether a place is where a search met its node.
local function stands_at(place, found)
  if not place or place.member ~= found.member then return false end
  return place.key == found.key or place.unknown == found.key or cpu_rows.free_entry(place).key == found.key
end

-- Whether a node that was met among the free ones stands in its class as well, and nothing asks for both.
local function stands_twice(place, found)
  return not place.shadowed and found.key == cpu_rows.free_entry(place).key
    and redis.call('ZSCORE', place.key, place.member) ~= false
end

-- Takes out what a search met and no row explains.
local function remove_found(found)
  redis.call('ZREM', found.key, found.member)
  if found.class then
    local least = redis.call('ZRANGE', found.key, '0', '0', 'WITHSCORES')[2]
    cpu_rows.set_head(found.class, found.row, least and tonumber(least) or cpu_rows.EMPTY)
    cpu_rows.flush()
  end
end
