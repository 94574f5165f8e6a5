-- @include "include/discount"
-- What an installed roster says once nothing of it is to be changed.

-- The installed roster is that of the report now. What nobody can be waiting for is not unexplained any more.
-- Returns whether nothing was: every listed id is told, or was there before anybody waited for it.
local function rest_on(node_id, account, generation, first)
  local load_cpu = account.allocated_cpu + account.paused_allocated_cpu
  local load_memory = account.allocated_memory_bytes + account.paused_allocated_memory_bytes
  local waiting = read_unnamed(node_id, generation)
  local clean = account.unexplained == 0 and not (first and account.baseline_ids > 0)
  if account.baseline_ids == 0 then account.baseline_cpu, account.baseline_memory = 0, 0 end
  if first or account.unexplained == 0 or (waiting and #waiting.e == 0) then
    account.baseline_generation = generation
    account.baseline_ids, account.unexplained = account.baseline_ids + account.unexplained, 0
    account.baseline_cpu = math.max(0, load_cpu - account.told_cpu)
    account.baseline_memory = math.max(0, load_memory - account.told_memory)
  end
  return clean
end

-- How many of a node's listed ids another node keeps; a new one is counted once, however often it is reported.
local function note_conflicts(node_id, contested_count)
  local before = tonumber(redis.call('HGET', node_key(node_id), 'contested') or '0')
  if contested_count == before then return end
  if contested_count > before then redis.call('HINCRBY', key('stats'), 'binding_conflicts', contested_count - before) end
  redis.call('HSET', node_key(node_id), 'contested', contested_count)
end
