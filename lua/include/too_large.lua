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

-- Of the nodes with this CPU capacity: the one with most memory, or one whose memory is not known. Second: the former,
-- and its memory.
local function is_held_among(cpu_capacity, demand, settings)
  local nodes = key('capacity:' .. cpu_capacity)
  local largest, most = unpack(redis.call('ZRANGE', nodes, '-1', '-1', 'WITHSCORES'))
  if not most then return false end
  if could_hold(tonumber(most), settings.memory_unlimited, SANDBOX_MEMORY_MAX, demand.memory) then return true end
  local least = redis.call('ZRANGE', nodes, '0', '0', 'WITHSCORES')[2]
  return tonumber(least) < 0 and demand.memory <= SANDBOX_MEMORY_MAX, largest, tonumber(most)
end

-- The largest listed node, in figures, when the request is too large for it: the one with most memory of those that have the
-- CPUs, or the one with most CPUs when none has. Else nil.
local function too_large_for(demand, settings)
  local from = demand.cpu
  if demand.cpu <= SANDBOX_CPU_MAX and settings.cpu_unlimited then from = '-inf' end
  local found = redis.call('ZREVRANGEBYSCORE', key('capacities'), '+inf', from, 'LIMIT', '0', integer(CAPACITIES_MAX))
  if #found == CAPACITIES_MAX then return nil end
  if could_hold(-1, false, SANDBOX_CPU_MAX, demand.cpu) then found[#found + 1] = '-1' end
  local node_id, memory
  for _, cpu_capacity in ipairs(found) do
    local held, largest, most = is_held_among(cpu_capacity, demand, settings)
    if held then return nil end
    if largest and (not memory or most > memory) then node_id, memory = largest, most end
  end
  if not node_id then
    local most = redis.call('ZRANGE', key('capacities'), '-1', '-1')[1]
    if not most then return nil end
    node_id = redis.call('ZRANGE', key('capacity:' .. most), '-1', '-1')[1]
  end
  -- @inline "include/shortages"
  local row = node_id and row_of(node_id)
  return row and excess_on(row, demand, settings) or {}
end
