-- inline/spread_places.lua: the places of a request's spread, and what each has. What a node has counts in the place that
-- it had last (`labels_before`, include/forget_observation) also while it is off the list, and until it reports again.
-- Reads: context, now, request
-- Sets: HOLDERS_MAX, SPREADS_MAX, count_at, count_candidates, given, held, held_by_value, holders, ids_by_value,
--   is_candidate, value_by_id, value_in, wanted
local HOLDERS_MAX, SPREADS_MAX = 1024, 10000
local given = { excluded = request.excluded, matches = request.matches }
local wanted, held, holders = request.spread, {}, {}
local ids_by_value, value_by_id, held_by_value = {}, {}, {}

local function value_in(labels)
  for name, value in string.gmatch(labels or '', '([^=;]+)=([^;]+)') do
    if name == wanted.over then return value end
  end
end

do
  local found = redis.call('HGETALL', key('spread:' .. wanted.key))
  for index = 1, #found, 2 do
    holders[#holders + 1], held[found[index]] = found[index], tonumber(found[index + 1])
  end
  if wanted.over ~= 'node' then
    for id, labels in pairs(as_table(redis.call('HGETALL', key('label_sets')))) do
      local value = value_in(labels)
      if value then
        ids_by_value[value] = ids_by_value[value] or {}
        ids_by_value[value][id], value_by_id[id] = true, value
      end
    end
    -- Of a node that was off the list for too long maintenance ends the reservations: until it came to them, as many of
    -- the key as one call may look at.
    local function ended_on(node_id)
      local evicted_at, ended = tonumber(redis.call('ZSCORE', key('removed'), node_id) or ''), 0
      if not evicted_at or evicted_at > now then return 0 end
      for _, id in ipairs(redis.call('ZRANGE', node_key(node_id, 'reservations'), 0, 63)) do
        local counted = redis.call('HMGET', reservation_key(id), 'spread', 'spread_counted')
        if counted[1] == wanted.key and counted[2] == '1' then ended = ended + 1 end
      end
      return ended
    end
    local function hold_in(value, count) held_by_value[value] = (held_by_value[value] or 0) + count end
    for _, node_id in ipairs(holders) do
      local row = row_of(node_id)
      local value, waiting = row and value_by_id[row.labels or '']
      if not row then held[node_id] = held[node_id] - ended_on(node_id) end
      if not value then
        local known = redis.call('HMGET', node_key(node_id), 'labels', 'labels_before', 'waiting')
        value, waiting = value_in(known[1]) or value_in(known[2]), known[3]
      end
      if value then
        hold_in(value, held[node_id])
      elseif waiting then
        -- Back after a loss of the ledger, and its report is still to tell where it is: it may be anywhere.
        for any in pairs(ids_by_value) do hold_in(any, held[node_id]) end
      end
    end
  end
end
table.sort(holders)

-- How many the place of a node has; nil: it is no place.
local function count_at(node_id, row)
  if wanted.over == 'node' then return held[node_id] or 0 end
  local value = value_by_id[row.labels or '']
  return value and (held_by_value[value] or 0)
end

-- Whether a node is a candidate that the request itself does not rule out.
local function is_candidate(node_id, avoided)
  local row = row_of(node_id)
  return row and node_pools.holds(context.variant, row.pool) and not given.excluded[node_id] and (avoided or not row.avoided)
    and not (given.matches and not given.matches[row.labels])
end

-- How many candidates there are, with these label sets (nil: whatever theirs is).
local function count_candidates(matches, avoided)
  local count = 0
  for _, set in ipairs(avoided and { context.set, context.second } or { context.set }) do
    if not matches then
      count = count + redis.call('ZCARD', key(set))
    else
      for id in pairs(matches) do count = count + redis.call('ZCARD', key(set .. ':' .. id)) end
    end
  end
  for node_id in pairs(given.excluded) do
    local row = row_of(node_id)
    if row and node_pools.holds(context.variant, row.pool) and (avoided or not row.avoided)
      and not (matches and not matches[row.labels]) then
      count = count - 1
    end
  end
  return count
end
