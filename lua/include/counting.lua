-- @include "include/holding"
-- What the open reservations of a node hold, counted a slice at a time where one call should not read them all. How far a
-- count came stands in the node's account (recount_to: all up to this sequence are counted, 0: none; recount_cpu, …) and
-- is followed by what is held and released meanwhile (include/holding), so whoever comes next goes on with it.
recount.SLICE = 300

-- Counts on; how many reservations that were, at most `most`. Fewer: all of them are counted. What is not open there any
-- more, because a script was stopped, leaves the list.
function recount.go_on(node_id, account, most)
  local further = recount.resources(node_id, account)
  if not further then account.recount_to, further = 0, {} end
  if account.recount_to == 0 then account.recount_cpu, account.recount_memory, account.recount_count = 0, 0, 0 end
  local from = account.recount_to > 0 and '(' .. integer(account.recount_to) or '-inf'
  local ids = redis.call('ZRANGEBYSCORE', node_key(node_id, 'reservations'), from, '+inf', 'WITHSCORES', 'LIMIT', 0, most)
  for index = 1, #ids, 2 do
    local open = as_table_of(reservation_key(ids[index]), 'state', 'node_id', 'cpu_count', 'memory_bytes', 'held_cpu',
      'held_memory', 'held_count', 'resources', 'held_resources')
    if open.node_id == node_id and is_open(open.state) then
      local cpu, memory, count = held_by(open)
      account.recount_cpu, account.recount_memory = account.recount_cpu + cpu, account.recount_memory + memory
      account.recount_count = account.recount_count + count
      resources.add_held(further, open)
    else
      redis.call('ZREM', node_key(node_id, 'reservations'), ids[index])
      redis.call('HDEL', node_key(node_id, 'unnamed'), ids[index])
    end
    account.recount_to = tonumber(ids[index + 1])
  end
  if next(further) then recount.note_resources(node_id, account, further) end
  return #ids / 2
end

-- Forgets a count once it is used.
function recount.finish(node_id, account)
  if next(recount.resources(node_id, account) or {}) then redis.call('HDEL', node_key(node_id), 'recount_resources') end
  account.recount_to, account.recount_cpu, account.recount_memory, account.recount_count = 0, 0, 0, 0
end
