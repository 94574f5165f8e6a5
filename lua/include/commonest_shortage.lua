-- @include "include/shortages"
-- @include "include/row_reads"
-- @include "include/nearest"
-- Stands inside include/refusal: the figures of the candidate that has most free of what keeps most of them out.

-- Of CPUs or memory (`what`; nil: of either), on the candidate that lacks it and has most of it free, among those looked
-- at: of those with as many CPUs, then of all; from the index, or where that knows none the first ones by id.
local function capacity_shortage(what, classes, request, context)
  local reason = 'insufficient_' .. (what or 'memory')
  local function lacks(node_id)
    local row = not request.excluded[node_id] and row_of(node_id)
    if not row or not node_pools.holds(context.variant, row.pool) or is_masked(row, context.demand) then return false end
    local _, found = score_of(row, context.demand, context.settings)
    return found == reason
  end
  local able = {}
  for _, class in ipairs(classes) do
    if class.final >= 0 then able[#able + 1] = class end
  end
  local opens = not what and 8 or nil
  local node_id = nearest(able, what or 'memory', lacks, opens) or nearest(classes, what or 'memory', lacks, opens)
  for _, set in ipairs(node_id and {} or { context.set, context.second }) do
    for _, each in ipairs(redis.call('ZRANGE', key(set), 0, 63)) do
      if not node_id and lacks(each) then node_id = each end
    end
  end
  if node_id then return shortage_on(row_of(node_id), context.demand, reason) end
  return what and {} or capacity_shortage('cpu', classes, request, context)
end

-- Of the further resource that most candidates lack (`further`: reason → nodes) on the one of them that has most of it
-- free, among those looked at.
local function commonest_shortage(further, request, context)
  local reason
  for name, nodes in pairs(further) do
    if not reason or nodes > further[reason] or (nodes == further[reason] and name < reason) then reason = name end
  end
  local name = string.match(reason, '^insufficient_(.+)$')
  local less = '(' .. integer(context.demand.resources[name])
  for _, node_id in ipairs(redis.call('ZREVRANGEBYSCORE', key('resource:' .. name), less, '-inf', 'LIMIT', 0, 32)) do
    local row = row_of(node_id)
    if row and node_pools.holds(context.variant, row.pool) and not request.excluded[node_id]
      and not is_masked(row, context.demand) and resources.lacking(row, context.demand.resources) == name then
      return shortage_on(row, context.demand, reason)
    end
  end
  return shortage_on({}, context.demand, reason)
end
