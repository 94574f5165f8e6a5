-- inline/choose_spread.lua: a request with a spread key goes to the places that have fewest of the key, as far as its
-- `max` or `skew` allows; among those of one level the strategy decides. A place is a node, or all nodes with one value of
-- a label; one without that label is none. Places with a candidate count for what is least, whether or not it has capacity.
--   context.spread   ceiling   the most that a place may have already; nil: there is no place
--                    counts    of a node: how many its place has; nil: it is no place
--                    blocks    whether a candidate is kept out
--                    narrow    takes what is kept out of a refusal's count (include/refusal)
-- Reads: context, request
-- Sets: ceiling_over, choose_spread, levels_by_node, levels_by_value, use
-- @inline "inline/choose_among"
-- @inline "inline/spread_places"

local function use(level)
  request.excluded, request.matches, context.located = level.excluded or given.excluded, level.matches or given.matches, nil
  context.demand.matches = request.matches
end

-- @inline "inline/spread_refusal"

-- One for the whole decision: places that only avoided nodes have count for what is least when there are no others.
local function ceiling_over(least)
  if not spread_refusal.ceiling then
    spread_refusal.ceiling = wanted.bound == 'max' and wanted.most - 1 or least + wanted.most - 1
  end
  return spread_refusal.ceiling
end

-- The levels in turn, each with what it leaves of the candidates: `count`, and `excluded`, `matches` or `nodes`.
local function levels_by_node(avoided)
  local by_count, counts, places = {}, {}, 0
  for _, node_id in ipairs(holders) do
    if is_candidate(node_id, avoided) then
      local count = held[node_id]
      if not by_count[count] then by_count[count], counts[#counts + 1] = {}, count end
      table.insert(by_count[count], node_id)
      places = places + 1
    end
  end
  table.sort(counts)
  local free = count_candidates(given.matches, avoided) > places
  if not free and not counts[1] then return {} end
  local ceiling, levels = ceiling_over(free and 0 or counts[1]), {}
  if free and #holders < HOLDERS_MAX then
    local excluded = {}
    for node_id in pairs(given.excluded) do excluded[node_id] = true end
    for node_id in pairs(held) do excluded[node_id] = true end
    levels[1] = { count = 0, excluded = excluded }
  end
  for _, count in ipairs(counts) do
    if count <= ceiling then levels[#levels + 1] = { count = count, nodes = by_count[count] } end
  end
  return levels
end

local function levels_by_value(avoided)
  local by_count, counts = {}, {}
  for value, ids in pairs(ids_by_value) do
    local matches = {}
    for id in pairs(ids) do
      if not given.matches or given.matches[id] then matches[id] = true end
    end
    if next(matches) and count_candidates(matches, avoided) > 0 then
      local count = held_by_value[value] or 0
      if not by_count[count] then by_count[count], counts[#counts + 1] = {}, count end
      for id in pairs(matches) do by_count[count][id] = true end
    end
  end
  if not counts[1] then return {} end
  table.sort(counts)
  local ceiling, levels = ceiling_over(counts[1]), {}
  for _, count in ipairs(counts) do
    local level = { count = count, matches = by_count[count] }
    -- A key with that many holders gets no more of them.
    if #holders >= HOLDERS_MAX then level.nodes = holders end
    if count <= ceiling then levels[#levels + 1] = level end
  end
  return levels
end

-- Decides level by level; the nodes that are avoided come when no other will do.
local function choose_spread(choose)
  local avoiding = context.avoiding
  for _, avoided in ipairs(avoiding and { false, true } or { false }) do
    context.avoiding = avoided
    for _, level in ipairs((wanted.over == 'node' and levels_by_node or levels_by_value)(avoided)) do
      use(level)
      local nodes = {}
      for _, node_id in ipairs(level.nodes or {}) do
        if is_candidate(node_id, avoided) and is_acceptable(node_id, request, context) then nodes[#nodes + 1] = node_id end
      end
      if nodes[1] then choose_among(nodes) end
      context.found = nil
      if nodes[1] or not level.nodes then choose() end
      if context.node_id or context.unproven then break end
    end
    if context.node_id or context.unproven then break end
  end
  context.avoiding, context.spread = avoiding, spread_refusal
  use(given)
end
