-- The one decision: which node. Stands in the body of the scripts that place and explain, between what
-- they read (settings, now, cursors, request) and what they write. Reserves nothing.
--
--   backlog (silent nodes, due reservations) → candidates (the last resort only when none is fresh)
--     → locality (advisory) → the strategy → too large for every node?
--     → in `context`: the node (nil: refused), the cursor it moves, what happens to its group
--
-- What is rarely needed is included inside its branch: functions cost a placement only when it gets there.
local swept, now_ms = true, integer(now)
if redis.call('ZCOUNT', key('seen'), '-inf', '(' .. integer(now - settings.report_ttl_ms)) > 0 then
  -- @include "include/silence"
  read_binding_settings(settings)
  local retired = retire_silent(now, settings.report_ttl_ms, settings.binding_ttl_ms)
  save_rows()
  if retired >= SILENCE_SLICE then return { 'again', 'silence' } end
end
if redis.call('ZCOUNT', key('expiry'), '-inf', now_ms) > 0 then
  -- @include "include/reservations"
  swept = expire_due(now, EXPIRY_SLICE) < EXPIRY_SLICE
  save_rows()
end

-- Who refuses what it is given; the next one that may be tried again stands first.
local avoided = redis.call('ZRANGE', key('avoided_until'), '0', '0', 'WITHSCORES')
if avoided[1] and tonumber(avoided[2]) <= now then
  -- @include "include/avoidance"
  readmit_avoided(now)
  save_rows()
end

local context = { settings = settings, cursors = cursors, now = now, admits = settings.admits and request.creation }
context.avoiding = avoided[1] ~= nil
find_candidates(context)
if settings.traits.by == 'group' then read_group_settings(settings) end
context.demand = demand_of(request.creation, request.cpu, request.memory_mb, context.variant)
if settings.locality and #request.locality > 0 then
  -- @include "include/choose_located"
  locate()
end
if settings.traits.by == 'rank' then
  context.moves = request.creation and settings.traits.cursor or settings.traits.other_cursor
  context.node_id = rank_candidates(request, context)
else
  -- @include "include/choose_by_turn"
  choose_unranked()
end
if request.creation then
  local row = context.node_id and row_of(context.node_id)
  if not row or row.cpu_capacity < context.demand.cpu or row.memory_capacity < context.demand.memory then
    -- @include "include/too_large"
    context.too_large = is_too_large(context.demand, settings)
    if context.too_large then context.node_id, context.moves, context.group = nil, nil, nil end
  end
end
if not context.node_id and context.unproven and not context.too_large then return { 'again', 'index' } end
