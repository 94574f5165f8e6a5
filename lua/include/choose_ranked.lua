-- @include "include/search"
-- @include "include/acceptance"
-- The least loaded candidate, or the fullest within `fill_to`: known ones that fit by pressure, then unknown ones by counts,
-- then those that are avoided in the same order; where capacity keeps nobody out, last the ones without it. After 64
-- refusals for limits the nodes are asked for in the order of what is free on them, which also proves that there is none.
local REJECTED_MOST = 64

-- Who is asked of single nodes. `fitting`: whether they must have the capacity, also where it keeps nobody out; `unproven`:
-- so many were refused that the search was cut short.
local function picker_for(request, context, counter)
  local picker = {
    counter = counter, demand = context.demand, rejected = 0, looked = 0, excluded = request.excluded,
    excludes = next(request.excluded) ~= nil,
  }
  function picker.accepts(node_id, class)
    if request.excluded[node_id] then return false end
    if class and not class.judged then return true end
    local row = picker.fitting and request.creation and row_of(node_id)
    local _, reason
    if row then _, reason = score_of(row, context.demand, context.settings) end
    if not reason and is_acceptable(node_id, request, context) then return true end
    picker.rejected = picker.rejected + 1
    if picker.rejected > REJECTED_MOST then picker.unproven = true end
    return false
  end
  return picker
end

-- By pressure, among the nodes that rank as known, or as unknown. `plain`: of classes alone that do not stand among the free
-- ones as well.
local function choose_known(pools, goal, context, picker, unknown, plain)
  local classes = {}
  picker.fill_to = unknown == false and context.settings.fill_to or 0
  for _, class in ipairs(classes_for(pools, unknown, context.demand, goal, context.settings)) do
    class.picky = picker.excludes or class.judged
    if not (plain and class.shadowed) then classes[#classes + 1] = class end
  end
  return classes[1] and best(classes, context.demand, picker)
end

-- After too many refusals: the nodes that need no question, then the others by what is free on them. Without a `goal` only
-- those that stand in no class: all classes were searched, and proven to have none.
local function choose_free(pools, goal, context, picker, unknown)
  -- @inline "inline/most_free"
  -- Those that hold what is asked for of further resources are looked at by themselves.
  if goal and context.demand.resources then return nil end
  picker.unproven, picker.rejected, picker.fitting = nil, 0, context.admits
  if not goal then picker.fill_to = 0 end
  return goal and choose_known(pools, goal, context, picker, unknown, true)
    or most_free(pools, context, picker, not goal)
end

-- Whether nodes of these pools may stand in no class.
local function reach_beyond_classes(pools, demand)
  for pool in string.gmatch(pools, '.') do
    if free_classes(pool, demand)[1] then return true end
  end
  return false
end

-- Candidates of these pools in the order of preference, as far as capacity admits them.
local function choose_fitting(pools, context, picker)
  local goal = context.demand.creation and 'fit' or 'any'
  picker.fitting = true
  local found = choose_known(pools, goal, context, picker, false)
  local refused = not found and picker.unproven
  if refused then found = choose_free(pools, goal, context, picker, false) end
  if not found and not picker.unproven then
    -- @inline "include/unknown"
    picker.fitting, picker.rejected = true, 0
    found = choose_unknown(pools, picker)
    if not found and picker.unproven then
      refused, found = true, choose_free(pools, goal, context, picker, true)
    end
  end
  if not found and not refused and reach_beyond_classes(pools, context.demand) then
    found = choose_free(pools, nil, context, picker)
  end
  return found
end

-- The entry of the node that is chosen, or nil. `context.unproven`: there may be one, and this call may look no further.
local function choose_ranked(request, context, counter)
  local picker, pools = picker_for(request, context, counter), node_pools.candidates(context.variant).pools
  local found = choose_fitting(pools, context, picker)
  if not found and picker.unproven and context.demand.resources then
    -- @inline "include/choose_holding"
    return choose_holding(request, context, counter)
  end
  if not found and context.avoiding then
    local avoided = picker_for(request, context, counter)
    found = choose_fitting(string.upper(pools), context, avoided)
    picker.unproven = picker.unproven or avoided.unproven
  end
  if not found and context.demand.creation and not context.admits then
    if context.avoiding then pools = pools .. string.upper(pools) end
    picker = picker_for(request, context, counter)
    for _, goal in ipairs({ 'over_cpu', 'over_memory' }) do
      found = found or choose_known(pools, goal, context, picker)
      if not found and picker.unproven then found = choose_free(pools, goal, context, picker) end
    end
  end
  if not found and picker.unproven and context.demand.resources then
    -- @inline "include/choose_holding"
    return choose_holding(request, context, counter)
  end
  context.unproven = not found and picker.unproven
  return found
end
