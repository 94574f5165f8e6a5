-- @include "include/scan"
-- @include "include/ties"
-- @include "include/classes"
-- The best node of some classes: the least loaded one, or with `picker.fill_to` first the fullest one within that share.

-- Works out the true pressure of a row whose bound may be less than it: the least among its nodes that are accepted.
-- Where capacities differ, or a row stands for several loads, the first 32 accepted ones are weighed.
local LOOKED_MOST, WEIGHED_MOST = 256, 32

local function weigh(item, demand, picker)
  local class, weighed = item.class, item.class.weighed or item.row == item.class.last
  local from, batch, least, taken = 0, 2, nil, 0
  item.key = key('row:' .. class.name .. ':' .. integer(item.row))
  while true do
    local found = redis.call('ZRANGE', item.key, from, from + batch - 1, 'WITHSCORES')
    for index = 1, #found, 2 do
      local node_id, score = string.sub(found[index], 31), tonumber(found[index + 1])
      local bound = math.max(item.cpu, memory_pressure(class, score))
      if score > class.most or (least and bound > least) then return least end
      if picker.accepts(node_id, class) then
        class.accepted[item.row] = class.accepted[item.row] or found[index]
        picker.looked = picker.looked + 1
        if not weighed or picker.looked > LOOKED_MOST then return least or bound end
        local row = row_of(node_id)
        local pressure = row and pressure_on(row, demand) or bound
        if not least or pressure < least then least, item.list = pressure, {} end
        if pressure == least then item.list[#item.list + 1] = found[index] end
        taken = taken + 1
        if taken >= WEIGHED_MOST then return least end
      elseif picker.unproven then
        return least
      end
    end
    if #found < 2 * batch then return least end
    from, batch = from + batch, math.min(64, batch * 2)
  end
end

-- The best node of these classes, by pressure, then by counts, equal ones in turn: its member and where it was found. Nil:
-- nobody is accepted, unless `picker.unproven` says that too many were refused to know.
local function best(classes, demand, picker)
  if picker.fill_to > 0 then
    -- @inline "include/row_reads_more"
    -- @inline "include/fullest"
    -- @inline "include/fullest_judged"
    local chosen = fullest(classes, demand, picker.fill_to, picker, fullest_accepted)
    if chosen or picker.unproven then return chosen end
    picker.looked, picker.rejected = 0, 0
  end
  while true do
    local least, found = scan(classes, demand.cpu)
    if not found then return nil end
    local settled = true
    for _, item in ipairs(found) do
      local class = item.class
      local weighed = class.weighed or item.row == class.last
      if weighed or (class.picky and class.exact[item.row] == nil) then
        local pressure = weigh(item, demand, picker)
        if picker.unproven then return nil end
        class.exact[item.row] = pressure or EMPTY
        if pressure ~= least then settled = false end
      end
    end
    local chosen = settled and pick_in_turn(found, least, picker)
    if chosen then return chosen end
    if picker.unproven then return nil end
  end
end
