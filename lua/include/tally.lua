-- Stands inside include/refusal: how many candidates lack CPUs, how many memory, and how many are within their limits
-- only without this request. Excluded ones count elsewhere.
-- Where rows tell capacity alone, they are counted by row. Where limits bind as well, or nodes stand in no class, up to 256
-- candidates are judged one by one; of more, those that have the capacity are over a limit, and the rest lacks it.
local JUDGED_MOST = 256

-- Calls `visit(key)` for every row with members that has CPUs free for the demand, of classes with or without limits.
local function visit_rows(classes, bounded, visit)
  for _, class in ipairs(classes) do
    if not bounded or string.find(class.marks, 'b', 1, true) then
      local tops = class_heads(class.name)
      for number = 0, math.min(#tops - 3, math.floor(class.final / CHUNK)) do
        if tops[number + 3] < EMPTY then
          local scores = chunk_heads(class.name, number)
          for at = 1, CHUNK do
            local row = number * CHUNK + at - 1
            if scores[at] < EMPTY and row <= class.final then
              visit(key('row:' .. class.name .. ':' .. integer(row)), class)
            end
          end
        end
      end
    end
  end
end

local function tally_rows(classes, request, context, left)
  if left > TOLD_APART_MAX then return left, 0, 0 end
  local memory = 0
  visit_rows(classes, false, function(name) memory = memory + redis.call('ZCARD', name) end)
  for node_id in pairs(request.excluded) do
    local row = row_of(node_id)
    if row and node_pools.holds(context.variant, row.pool) and not is_masked(row, context.demand) then
      local _, reason = score_of(row, context.demand, context.settings)
      if reason ~= 'insufficient_cpu' then memory = memory - 1 end
    end
  end
  return left - memory, memory, 0
end

-- Of all candidates, or of these lists of nodes; last: how many of them are candidates.
local function tally_nodes(request, context, lists)
  local counts, over, judged = { insufficient_cpu = 0, insufficient_memory = 0, over_limit = 0 }, {}, 0
  for index, set in ipairs({ context.set, context.second }) do
    for _, node_id in ipairs(lists and (lists[index] or {}) or redis.call('ZRANGE', key(set), 0, -1)) do
      local row = not request.excluded[node_id] and row_of(node_id)
      if row and node_pools.holds(context.variant, row.pool) and not is_masked(row, context.demand) then
        judged = judged + 1
        local score, reason = score_of(row, context.demand, context.settings)
        if not context.admits and context.demand.resources then
          reason = obstacle(row, context.demand, context.settings, false)
        end
        if reason then counts[reason] = (counts[reason] or 0) + 1 end
        if reason == 'over_limit' then over[#over + 1] = { score = score, member = row_member(row, node_id) } end
      end
    end
  end
  table.sort(over, function(one, other)
    if one.score ~= other.score then return one.score < other.score end
    return one.member < other.member
  end)
  for index, each in ipairs(over) do over[index] = string.sub(each.member, 31) end
  local cpu, memory, limit = counts.insufficient_cpu, counts.insufficient_memory, counts.over_limit
  counts.insufficient_cpu, counts.insufficient_memory, counts.over_limit = nil, nil, nil
  return cpu, memory, limit, over, false, counts, judged
end

-- More than are judged: those without a further resource by the order that is kept of it. The rest lacks something else:
-- of few it is told what.
local function tally_resources(request, context, left)
  local scarcest, holding
  for name, amount in pairs(context.demand.resources) do
    local found = amount > 0 and name ~= resources.BUILT_IN and redis.call('ZRANGEBYSCORE', key('resource:' .. name),
      integer(amount), '+inf', 'LIMIT', 0, JUDGED_MOST + 1)
    if found and (not holding or #found < #holding or (#found == #holding and name < scarcest)) then
      scarcest, holding = name, found
    end
  end
  if holding and #holding <= JUDGED_MOST then
    local cpu, memory, limit, over, together, further, judged = tally_nodes(request, context, { holding })
    local reason = 'insufficient_' .. scarcest
    further[reason] = left > judged and (further[reason] or 0) + left - judged or further[reason]
    return cpu, memory, limit, over, together, further
  end
  -- At least so many: nodes that are no candidates count among those with enough, and those short of the built-in one.
  local further, names = {}, {}
  for name, amount in pairs(context.demand.resources) do
    if amount > 0 then names[#names + 1] = name end
  end
  table.sort(names)
  for _, name in ipairs(names) do
    local free, amount = key('resource:' .. name), integer(context.demand.resources[name])
    local enough = name == resources.BUILT_IN
      and redis.call('ZCARD', key('nodes')) - redis.call('ZCOUNT', free, '-inf', '(' .. amount)
      or redis.call('ZCOUNT', free, amount, '+inf')
    -- Without admission nothing else keeps a candidate out.
    if name == names[#names] and not context.admits and not context.settings.limited then enough = 0 end
    if enough < left then
      further['insufficient_' .. name] = left - enough
      left = enough
    end
  end
  return left, 0, 0, {}, true, further
end

-- More than are judged: those with the capacity lack it under their limits. Some of them, to name a limit.
local function tally_limits(classes, context, left)
  local limit, over = 0, {}
  visit_rows(classes, true, function(name, class)
    local most = string.format('%.17g', class.most)
    limit = limit + redis.call('ZCOUNT', name, '-inf', most)
    if #over < 32 then
      for _, member in ipairs(redis.call('ZRANGEBYSCORE', name, '-inf', most, 'LIMIT', 0, 32)) do
        over[#over + 1] = string.sub(member, 31)
      end
    end
  end)
  if not context.admits then limit = left end
  limit = math.min(limit, left)
  return left - limit, 0, limit, over, true
end

-- CPUs, memory, limits; the nodes that limits keep out, as far as they are known; whether the first two are one figure; the
-- others by reason.
local function tally(request, context, left)
  local classes = classes_for(pools_of(context), nil, context.demand, 'fit', context.settings)
  local plain = not reach_beyond_classes(pools_of(context), context.demand)
  for _, class in ipairs(classes) do plain = plain and not class.shadowed end
  if plain and not context.demand.resources then return tally_rows(classes, request, context, left) end
  if left <= JUDGED_MOST then return tally_nodes(request, context) end
  if context.demand.resources then return tally_resources(request, context, left) end
  return tally_limits(classes, context, left)
end
