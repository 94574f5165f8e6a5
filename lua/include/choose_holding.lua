-- Stands inside include/choose_ranked: the least loaded of the nodes that have enough free of a further resource, where a
-- search by load has met too many that have not. They are judged one by one, so that a refusal is proven.
-- @include "include/ranking"
local HOLDING_MOST = 512

-- Of the resources asked for, the one that fewest nodes have enough of: its nodes, and whether there may be more.
local function fewest_holding(amounts)
  local scarcest, least
  for name, amount in pairs(amounts) do
    local count = amount > 0 and redis.call('ZCOUNT', key('resource:' .. name), integer(amount), '+inf')
    if count and (not least or count < least) then scarcest, least = name, count end
  end
  local ids = redis.call('ZREVRANGEBYSCORE', key('resource:' .. scarcest), '+inf', integer(amounts[scarcest]), 'LIMIT', 0,
    HOLDING_MOST)
  return ids, least > #ids, scarcest
end

local function choose_holding(request, context, counter)
  local demand, settings = context.demand, context.settings
  local ids, more, scarcest = fewest_holding(demand.resources)
  local best, counts, tied = nil, nil, {}
  local function look_at(node_id)
    local row = row_of(node_id)
    if not row or not node_pools.holds(context.variant, row.pool) then return end
    if not is_acceptable(node_id, request, context) then return end
    local score, own = rank_of(row, demand, settings)
    if not best or score < best or (score == best and own < counts) then best, counts, tied = score, own, {} end
    if score == best and own == counts then tied[#tied + 1] = node_id end
  end
  for _, node_id in ipairs(ids) do look_at(node_id) end
  if scarcest == resources.BUILT_IN then
    -- Those of which it is not known have it too, and stand in no such order.
    local unknown = redis.call('ZRANGE', key(context.set), 0, HOLDING_MOST - 1)
    for _, node_id in ipairs(unknown) do
      local row = row_of(node_id)
      if row and not resources.free_on(row, scarcest) then look_at(node_id) end
    end
    more = more or #unknown == HOLDING_MOST
  end
  context.unproven = not best and more and 'resources'
  if not best then return nil end
  table.sort(tied)
  local node_id = tied[1 + counter % #tied]
  local place = cpu_rows.place_of(row_of(node_id), node_id)
  return { key = place.key, member = place.member }
end
