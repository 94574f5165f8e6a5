-- @include "include/reply"
-- Whether a request is larger than every listed node, were it empty. A capacity that is not known, and one that
-- excludes nothing (`unlimited`), is taken for the largest a sandbox may have.
local SANDBOX_CPU_MAX = 65536
local SANDBOX_MEMORY_MAX = 2 ^ 44
-- Different CPU capacities that one call looks at; beyond them a request counts as one that could fit somewhere.
local CAPACITIES_MAX = 1024

local function could_hold(capacity, unlimited, largest, requested)
  if capacity < 0 or unlimited then capacity = math.max(capacity, largest) end
  return requested <= capacity
end

-- Of the nodes with this CPU capacity: the one with most memory, or one whose memory is not known.
local function is_held_among(cpu_capacity, demand, settings)
  local nodes = key('capacity:' .. cpu_capacity)
  local most = redis.call('ZRANGE', nodes, '-1', '-1', 'WITHSCORES')[2]
  if not most then return false end
  if could_hold(tonumber(most), settings.memory_unlimited, SANDBOX_MEMORY_MAX, demand.memory) then return true end
  local least = redis.call('ZRANGE', nodes, '0', '0', 'WITHSCORES')[2]
  return tonumber(least) < 0 and demand.memory <= SANDBOX_MEMORY_MAX
end

local function is_too_large(demand, settings)
  local from = demand.cpu
  if demand.cpu <= SANDBOX_CPU_MAX and settings.cpu_unlimited then from = '-inf' end
  local found = redis.call('ZREVRANGEBYSCORE', key('capacities'), '+inf', from, 'LIMIT', '0', integer(CAPACITIES_MAX))
  if #found == CAPACITIES_MAX then return false end
  if could_hold(-1, false, SANDBOX_CPU_MAX, demand.cpu) then found[#found + 1] = '-1' end
  for _, cpu_capacity in ipairs(found) do
    if is_held_among(cpu_capacity, demand, settings) then return false end
  end
  return redis.call('EXISTS', key('capacities')) == 1
end
