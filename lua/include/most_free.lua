-- Included inside include/choose_ranked: nodes by what is free on them under everything that binds a creation. The only
-- order of nodes beyond the 256th class, and the proof that none fits where limits refuse many.
local FREE_LOOKED_AT = 256

-- The entries of one row with enough memory, those with most first.
local function accepted_in(name, most, picker, asked)
  local from = 0
  while true do
    local members = redis.call('ZRANGEBYSCORE', name, '-inf', most, 'LIMIT', from, 8)
    for _, member in ipairs(members) do
      asked.count = asked.count + 1
      if asked.count > FREE_LOOKED_AT then
        picker.unproven = true
        return nil
      end
      if picker.accepts(string.sub(member, 31)) then return { key = name, member = member } end
    end
    if #members < 8 then return nil end
    from = from + 8
  end
end

-- Rows from the one with most free CPUs down to `least`; `most`: the highest score that has the memory.
local function walk_down(class, least, most, picker)
  local tops, asked = class_heads(class), { count = 0 }
  for number = tops and #tops - 3 or -1, math.floor(least / CHUNK), -1 do
    if tops[number + 3] <= most then
      local scores = chunk_heads(class, number)
      for at = CHUNK, 1, -1 do
        local row = number * CHUNK + at - 1
        if scores[at] <= most and row >= least then
          local found = accepted_in(key('row:' .. class .. ':' .. integer(row)), string.format('%.17g', most), picker, asked)
          if found then found.class, found.row = class, row end
          if found or asked.count > FREE_LOOKED_AT then return found end
        end
      end
    end
  end
  return nil
end

-- The one with most free CPUs of those that are found in several classes.
local function walk_all(classes, least, most, picker)
  local best
  for _, class in ipairs(classes) do
    local found = walk_down(class, least, most, picker)
    if found and (not best or found.row > best.row) then best = found end
  end
  return best
end

local function most_free(pools, context, picker)
  local demand, settings = context.demand, context.settings
  local cpus = math.min(cpu_rows.FREE_ROWS, math.max(1, 2 * demand.cpu))
  local bytes = math.max(1, 2 * demand.memory)
  for pool in string.gmatch(pools, '.') do
    local classes = free_classes(pool, demand)
    local found = demand.creation and walk_all(classes, cpus, -bytes, picker)
    -- Of nodes that stand in no class all capacities are counted, also those that keep nobody out.
    local all_bind = context.admits and not settings.cpu_unlimited and not settings.memory_unlimited
    if not found and not all_bind and redis.call('HLEN', key('classes')) >= cpu_rows.CLASSES_MAX then
      found = walk_all(classes, 0, 1, picker)
    end
    if found then return found end
  end
  return nil
end
