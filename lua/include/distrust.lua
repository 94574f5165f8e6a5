-- Included inside schedule_sandbox: a script was stopped half-way, and left a node where it does not belong.
-- @include "include/pool_sets"
local function distrust(node_id, row, context)
  if not row then
    for _, sets in pairs(POOL_SETS) do
      for _, name in ipairs(sets) do redis.call('ZREM', key(name), node_id) end
    end
  end
  if context.indexed then
    redis.call('UNLINK', context.shape.key)
    redis.call('HDEL', key('shapes'), context.shape.name)
  end
  save_rows()
  return { 'again', 'index' }
end
