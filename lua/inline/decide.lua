-- inline/decide.lua: the one decision: which node. Stands in the body of the scripts that place and explain, between what
-- they read and what they write. Reserves nothing.
--
--   (inline/backlog) → candidates (the last resort only when none is fresh)
--     → the places with fewest of its spread key → locality (advisory) → the strategy → too large for every node?
--     → in `context`: the node (nil: refused), the cursor it moves, what happens to its group
--
-- What is rarely needed is put inside its branch: functions cost a placement only when it gets there.
-- Reads: avoided, cursors, now, request, settings
-- Sets: choose, context
if request.unadmitted then return { 'unadmitted', request.unadmitted } end
local context = { settings = settings, cursors = cursors, now = now, admits = settings.admits and request.creation }
context.avoiding = avoided[1] ~= nil
find_candidates(context)
if settings.traits.by == 'group' then
  -- @inline "include/group_settings"
  read_group_settings(settings)
end
if settings.scarce and request.creation then
  -- @inline "include/scarcity"
  context.scarce = spared_by(request, settings.scarce)
end
local function choose()
  if settings.locality and #request.locality > 0 then
    -- @inline "inline/choose_located"
    locate()
  end
  if settings.traits.by == 'rank' then
    context.moves = request.creation and settings.traits.cursor or settings.traits.other_cursor
    context.node_id = rank_candidates(request, context)
  else
    -- @inline "inline/choose_by_turn"
    choose_unranked()
  end
end
-- With something scarce twice: first among the nodes without it.
request.spares = context.scarce
repeat
  local sparing = request.spares ~= nil
  context.demand, context.located = demand_of(request, context.variant), nil
  if request.spread then
    -- @inline "inline/choose_spread"
    if not holders[1] and redis.call('HLEN', key('spreads')) >= SPREADS_MAX then return { 'overloaded', 'spread' } end
    choose_spread(choose)
  else
    choose()
  end
  request.spares = nil
until context.node_id or not sparing
if request.creation then
  local row = context.node_id and row_of(context.node_id)
  if not row or row.cpu_capacity < context.demand.cpu or row.memory_capacity < context.demand.memory then
    -- @inline "include/too_large"
    context.too_large = too_large_for(context.demand, settings)
    if context.too_large then context.node_id, context.moves, context.group = nil, nil, nil end
  end
end
if not context.node_id and row_order.rebuilt then
  -- A row that could not be read was judged before it is in its sets again.
  save_rows()
  return { 'again', 'index' }
end
if not context.node_id and context.unproven and not context.too_large then
  if context.unproven == 'resources' then return { 'overloaded', 'resources' } end
  return { 'again', 'index' }
end
