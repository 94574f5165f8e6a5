-- The one decision: which node. Stands in the body of the scripts that place and explain, between what
-- they read (settings, now, cursors, request) and what they write. Keeps derived indexes current,
-- reserves nothing.
--
--   backlog (silent nodes, due reservations) → candidates (the last resort only when none is fresh)
--     → index → locality (advisory) → the strategy → too large for every node?
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
local ranked = settings.strategy == 'least_loaded'
find_candidates(context)
if settings.strategy == 'grouped_round_robin' then read_group_settings(settings) end
context.shape = shape_of(request.creation, request.cpu, request.memory_mb, context.variant)
context.indexed = ranked or context.admits
  or (request.creation and (settings.limited or settings.group_placement == 'least_loaded'))
if context.indexed and not open_shape(context.shape, cursors.journal_base) then
  -- An index is built only for what some node could hold.
  if request.creation and not context.shape.cursor then
    -- @include "include/too_large"
    context.too_large = is_too_large(context.shape, settings)
  end
  if context.too_large then
    context.indexed = false
  else
    -- @include "include/mend_shapes"
    if not mend(context.shape, settings, now) then return { 'again', 'index' } end
  end
end
if settings.locality and #request.locality > 0 and not context.too_large then
  -- @include "include/choose_located"
  locate()
end
if context.too_large then
  context.node_id = nil
elseif ranked then
  context.node_id, context.moves = rank_candidates(request, context), request.creation and 'ties' or 'ordinary_ties'
else
  -- @include "include/choose_by_turn"
  choose_unranked()
end
if request.creation and not context.too_large then
  local row = context.node_id and row_of(context.node_id)
  if not row or row.cpu_capacity < context.shape.cpu or row.memory_capacity < context.shape.memory then
    -- @include "include/too_large"
    context.too_large = is_too_large(context.shape, settings)
    if context.too_large then context.node_id, context.moves, context.group = nil, nil, nil end
  end
end
