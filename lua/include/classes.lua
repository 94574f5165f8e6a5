-- @include "include/scores"
-- @include "include/scan"
-- @include "include/bands"
-- The classes of the index as a search sees them: what of each a request may use.

-- Every class there is, read once in the life of a script.
local function all_classes()
  if cpu_rows.listed then return cpu_rows.listed end
  local found, listed, free = redis.call('HGETALL', key('classes')), {}, {}
  for index = 1, #found, 2 do
    local name, tops = found[index], cpu_rows.classes[found[index]]
    if tops == nil then
      tops = cpu_rows.unpack(found[index + 1])
      cpu_rows.classes[name] = tops
    end
    local pool, labels, cpu, band, presence, marks = string.match(name, '^(%a),([^,]+),(%-?%d+),(%-?%d+),([^,]+),(%a*)$')
    if pool and tops then
      cpu = tonumber(cpu)
      local step, last = cpu_rows.rows_of(cpu)
      listed[#listed + 1] = {
        name = name, pool = pool, labels = labels, presence = presence, cpu = cpu, band = tonumber(band), marks = marks,
        step = step, last = last,
      }
    else
      pool, labels = string.match(name, '^(%a),?([^,]*),free$')
      if pool then free[#free + 1] = { name = name, pool = pool, labels = labels } end
    end
  end
  cpu_rows.listed, cpu_rows.free = listed, free
  return listed
end

-- Whether nodes of a class rank as unknown for this demand.
local function ranks_unknown(class, demand)
  if string.lower(class.pool) == node_pools.UNKNOWN or (class.cpu < 0 and class.band < 0) then return true end
  local waits = string.find(class.marks, 'p', 1, true) ~= nil
  return (class.cpu < 0 and (demand.cpu > 0 or waits)) or (class.band < 0 and (demand.memory > 0 or waits))
end

-- What a load may be at most for a request: the last load that still takes it.
local function most_load(capacity, requested)
  return requested > 0 and capacity - requested or capacity - 1
end

-- Sets what of a class a search looks at. `goal` says which nodes of it: 'fit' with capacity for the demand, 'any',
-- 'over_cpu' without free CPUs, 'over_memory' with free CPUs alone.
local function aim(class, demand, goal, settings)
  local cpu, band, tops = class.cpu, class.band, cpu_rows.classes[class.name]
  class.exact, class.accepted = {}, {}
  class.first, class.final, class.most = 0, class.last, EMPTY / 2
  if cpu >= 0 and goal ~= 'any' and not settings.cpu_unlimited then
    local edge = math.floor(most_load(cpu, demand.cpu) / class.step)
    if goal == 'over_cpu' then
      class.first = math.max(0, class.step > 1 and edge or edge + 1)
    else
      class.final = math.min(edge, class.last)
    end
  elseif goal == 'over_cpu' then
    class.final = -1
  end
  if band >= 0 and goal == 'fit' and not settings.memory_unlimited then class.most = most_load(band, demand.memory) end
  -- Pressures are (row * step + CPUs) / per_cpu, and (score + per) / per_memory; of nodes whose memory capacities differ
  -- within a band, never more than theirs.
  class.per_cpu = cpu < 0 and math.huge or (cpu == 0 and 2 ^ -60 or cpu)
  local least, most = tops[1], tops[2]
  if band >= 0 and least < 0 then least, most = band, band end
  class.per_memory = band < 0 and math.huge or (least == 0 and 2 ^ -60 or least)
  class.per = band < 0 and 0 or least - band + demand.memory
  class.above, class.per_memory_above = nil, nil
  if most - least > least * EVEN and band >= 0 then
    class.above, class.per_memory_above = most - band + demand.memory, most
  end
  -- Whether nodes must be asked for one by one: for limits, for the edge of a row that stands for several loads, or for
  -- totals that no capacity keeps within what the ledger can count.
  class.shadowed = class.step > 1 or string.find(class.marks, 'b', 1, true) ~= nil
  class.judged = demand.creation and (class.shadowed or demand.resources ~= nil
    or (demand.memory > 0 and (band < 0 or settings.memory_unlimited)))
  class.weighed = class.above ~= nil or class.step > 1 or cpu == 0 or least == 0
end

-- Whether a class holds nodes that may take the demand at all.
local function is_masked(class, demand)
  if demand.matches ~= nil and not demand.matches[class.labels] then return true end
  if demand.spares ~= nil and class.presence ~= nil then
    if demand.spares.sets[class.labels] then return true end
    for name in string.gmatch(class.presence, '[^+]+') do
      if demand.spares.names[name] then return true end
    end
  end
  return demand.resources ~= nil and class.presence ~= nil and not resources.may_have(class.presence, demand.resources)
end

-- The nodes of one pool by what is free on them, as far as the demand may look at them.
local function free_classes(pool, demand)
  all_classes()
  local chosen = {}
  for _, class in ipairs(cpu_rows.free) do
    if class.pool == pool and class_heads(class.name) and not is_masked(class, demand) then
      chosen[#chosen + 1] = class.name
    end
  end
  return chosen
end

-- The classes of these pools, ready to be searched. `unknown`: whether they rank as such; nil for either.
local function classes_for(pools, unknown, demand, goal, settings)
  local chosen = {}
  for _, class in ipairs(all_classes()) do
    if string.find(pools, class.pool, 1, true) and cpu_rows.classes[class.name] and not is_masked(class, demand)
      and (unknown == nil or ranks_unknown(class, demand) == unknown) then
      aim(class, demand, goal, settings)
      chosen[#chosen + 1] = class
    end
  end
  return chosen
end
