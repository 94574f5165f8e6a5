-- @include "include/reply"
-- What every listed node could hold if it were empty, kept beside the rows:
--   capacities       zset: the effective CPU capacities there are, -1 for one that is not known
--   capacity:<cpu>   zset: node → its effective memory capacity in bytes, -1 when it is not known

local function enter_capacity(node_id, row)
  local cpu = integer(row.cpu_capacity)
  redis.call('ZADD', key('capacities'), cpu, cpu)
  redis.call('ZADD', key('capacity:' .. cpu), integer(row.memory_capacity), node_id)
end

local function leave_capacity(node_id, cpu_capacity)
  local cpu = integer(cpu_capacity)
  redis.call('ZREM', key('capacity:' .. cpu), node_id)
  if redis.call('EXISTS', key('capacity:' .. cpu)) == 0 then redis.call('ZREM', key('capacities'), cpu) end
end
