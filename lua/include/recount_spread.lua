-- @include "include/reservations"
-- Counts a spread key anew, for the scripts that recount and repair one: ARGV[3] is how far the caller has read reservations
-- (a sequence), ARGV[4] how many of the following ids are reservations that named the key; the rest are sandboxes whose
-- records did. Of what has come since every record has a reservation that has come since, or is among these.
local NEWER_MAX = 2000

-- Node → how many; nil: so much was placed meanwhile that the caller must read again. Second: the reservations that say
-- wrongly whether they count.
local function recounted_spread(spread_key)
  local newer = redis.call('ZRANGEBYSCORE', key('reservations'), '(' .. ARGV[3], '+inf', 'LIMIT', 0, NEWER_MAX)
  if #newer == NEWER_MAX then return nil end
  local counts, wrong, seen = {}, {}, {}
  local function add(node_id) counts[node_id] = (counts[node_id] or 0) + 1 end
  local function add_record(sandbox_id)
    local record = not seen[sandbox_id] and record_of(sandbox_id)
    seen[sandbox_id] = true
    if record and record.spread == spread_key and record.counted_at then add(record.counted_at) end
  end
  local function add_reservation(reservation_id)
    local found = as_table_of(reservation_key(reservation_id), 'spread', 'spread_counted', 'state', 'node_id', 'sandbox_id')
    if found.spread ~= spread_key or seen['\n' .. reservation_id] then return end
    seen['\n' .. reservation_id] = true
    local record = found.sandbox_id and record_of(found.sandbox_id)
    local recorded = record and record.spread == spread_key
    local counts_itself = is_open(found.state) and not recorded
    if counts_itself then add(found.node_id) end
    if counts_itself ~= (found.spread_counted == '1') then wrong[#wrong + 1] = { reservation_id, counts_itself } end
    if found.sandbox_id then add_record(found.sandbox_id) end
  end
  local listed = tonumber(ARGV[4])
  for index = 5, 4 + listed do add_reservation(ARGV[index]) end
  for _, reservation_id in ipairs(newer) do add_reservation(reservation_id) end
  for index = 5 + listed, #ARGV do add_record(ARGV[index]) end
  return counts, wrong
end
