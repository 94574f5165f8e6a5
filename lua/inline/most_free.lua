-- inline/most_free.lua: nodes by what is free on them under everything that binds a creation. The only order of nodes beyond
-- the 256th class, and the proof that none fits where limits refuse many.
-- Reads: picker
-- Sets: FREE_LOOKED_AT, accepted_in, is_beyond_classes, most_free, walk, walk_all
local FREE_LOOKED_AT = 256

-- The first entry of one row with enough memory that `accepts` takes: from most of it down, or with `up` from least.
local function accepted_in(name, most, up, accepts, asked)
  local from = 0
  while true do
    local members = up and redis.call('ZREVRANGEBYSCORE', name, most, '-inf', 'LIMIT', from, 8)
      or redis.call('ZRANGEBYSCORE', name, '-inf', most, 'LIMIT', from, 8)
    for _, member in ipairs(members) do
      if not picker.excluded[string.sub(member, 31)] then asked.count = asked.count + 1 end
      if asked.count > FREE_LOOKED_AT then return nil end
      if accepts(string.sub(member, 31)) then return { key = name, member = member } end
    end
    if #members < 8 then return nil end
    from = from + 8
  end
end

-- The rows with at least so many free CPUs, from the one with most down, or with `up` from the one with least. `most`: the
-- highest score that has the memory. Second: so many were asked that there may be one.
local function walk(class, least, most, up, accepts)
  local tops, asked = class_heads(class), { count = 0 }
  local first, last, step = tops and #tops - 3 or -1, math.floor(least / CHUNK), -1
  if up then first, last, step = last, first, 1 end
  for number = first, last, step do
    if tops[number + 3] <= most then
      local scores = chunk_heads(class, number)
      for at = up and 1 or CHUNK, up and CHUNK or 1, step do
        local row = number * CHUNK + at - 1
        if scores[at] <= most and row >= least then
          local name = key('row:' .. class .. ':' .. integer(row))
          local found = accepted_in(name, string.format('%.17g', most), up, accepts, asked)
          if found then found.class, found.row = class, row end
          if found or asked.count > FREE_LOOKED_AT then return found, not found end
        end
      end
    end
  end
  return nil
end

-- Of several classes: the one with most free CPUs, or with `up` with fewest.
local function walk_all(classes, least, most, up, accepts)
  local best, any_more
  for _, class in ipairs(classes) do
    local found, more = walk(class, least, most, up, accepts)
    if found and (not best or (up and found.row < best.row) or (not up and found.row > best.row)) then best = found end
    any_more = any_more or more
  end
  return best, any_more
end

-- Whether a node that stands among the free ones stands in no class.
local function is_beyond_classes(node_id)
  local row = row_of(node_id)
  local place = row and cpu_rows.place_of(row, node_id)
  return place and not (place.shadowed and redis.call('ZSCORE', place.key, place.member))
end

-- `alone`: only those that stand in no class.
local function most_free(pools, context, picker, alone)
  local demand, settings = context.demand, context.settings
  local cpus = math.min(cpu_rows.FREE_ROWS, math.max(1, 2 * demand.cpu))
  local bytes = math.max(1, 2 * demand.memory)
  local function within_share(node_id)
    local row = row_of(node_id)
    return row and pressure_on(row, demand) <= picker.fill_to and picker.accepts(node_id)
  end
  local crowded = redis.call('HLEN', key('classes')) >= cpu_rows.CLASSES_MAX
  local function accepts_beyond(node_id)
    return is_beyond_classes(node_id) and picker.accepts(node_id)
  end
  -- While there is room for classes few nodes, if any, stand in none: a refusal waits for no more of them.
  local function take(classes, least, most, beyond)
    local found, more = walk_all(classes, least, most, false, beyond and accepts_beyond or picker.accepts)
    picker.unproven = picker.unproven or (more and (crowded or not beyond))
    return found
  end
  for pool in string.gmatch(pools, '.') do
    local classes = free_classes(pool, demand)
    local found = demand.creation and picker.fill_to > 0 and walk_all(classes, cpus, -bytes, true, within_share)
    found = found or (demand.creation and take(classes, cpus, -bytes, alone))
    -- Of nodes that stand in no class all capacities are counted, also those that keep nobody out.
    local all_bind = context.admits and not settings.cpu_unlimited and not settings.memory_unlimited
    if not found and not all_bind then found = take(classes, 0, 1, alone or not crowded) end
    if found then return found end
  end
  return nil
end
