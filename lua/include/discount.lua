-- @include "include/account"
-- What a node's observed load already holds of the reservations that are open, have no name, and were made
-- before the last report. Never too much: where the report leaves it open, the smallest.
--   node:<id>:unnamed   open reservation without a sandbox → 'lifecycle,sequence,cpu,memory,count', as held;
--                       a capital: restored after a loss, so it may be in the baseline, and is held in full
--   node:<id>:doubts    reservation that ended without a told name and may still own a listed id
local weigh_again, note_unnamed, read_unnamed, surely_entered, weigh_unnamed
do
  local UNNAMED_MAX = 1024
  local dirty_accounts = {}

  -- Open or unnamed reservations, or what the roster shows, changed: to be weighed anew before rows are saved.
  function weigh_again(node_id) dirty_accounts[node_id] = true end

  function note_unnamed(reservation, cpu, memory, count)
    weigh_again(reservation.node_id)
    local letter = reservation.lifecycle == 'heartbeat' and 'h' or 'e'
    if reservation.restored then letter = string.upper(letter) end
    redis.call('HSET', node_key(reservation.node_id, 'unnamed'), reservation.reservation_id,
      string.format('%s,%d,%d,%d,%d', letter, reservation.sequence, cpu, memory, count))
  end

  -- The unnamed that were made before `generation`, by lifecycle. Nil: more than may be weighed.
  function read_unnamed(node_id, generation)
    local hash = node_key(node_id, 'unnamed')
    if redis.call('HLEN', hash) > UNNAMED_MAX then return nil end
    local found = { e = {}, h = {} }
    local flat = redis.call('HGETALL', hash)
    for index = 2, #flat, 2 do
      local letter, sequence, cpu, memory, count = string.match(flat[index], '^(%a),(%d+),(%d+),(%d+),(%d+)$')
      if found[letter] and tonumber(sequence) < generation then
        table.insert(found[letter], {
          id = flat[index - 1], cpu = tonumber(cpu), memory = tonumber(memory), count = tonumber(count),
        })
      end
    end
    return found
  end

  -- The sizes there are, in order, and how many have each: few differ, however many wait.
  local function sorted_sizes(waiting, dimension)
    local found, sizes = {}, {}
    for _, size in ipairs(waiting) do
      local value = size[dimension]
      if not found[value] then sizes[#sizes + 1] = value end
      found[value] = (found[value] or 0) + 1
    end
    table.sort(sizes)
    return { values = sizes, how_many = found }
  end

  -- Σ of the `count` smallest; of the largest when `from_top`.
  local function sum_of(sizes, count, from_top)
    local total, distinct = 0, #sizes.values
    for index = 1, distinct do
      if count <= 0 then break end
      local value = sizes.values[from_top and distinct + 1 - index or index]
      local taken = math.min(count, sizes.how_many[value])
      total, count = total + taken * value, count - taken
    end
    return total
  end

  -- Callers that confirm. `ids` are unexplained, `load` is what nothing explains of it.
  local function discount_bounded(waiting, dimension, ids, load, stated, doubted)
    local sizes = sorted_sizes(waiting, dimension)
    if stated and doubted == 0 and ids <= #waiting and sizes.values[1] > 0
      and sum_of(sizes, ids) <= load and load <= sum_of(sizes, ids, true) then
      return load
    end
    return math.max(0, math.min(load, sum_of(sizes, ids - doubted)))
  end

  -- How many unnamed reservations of callers that never confirm have surely entered the node.
  function surely_entered(node_id, account, waiting)
    local made_before = redis.call('ZCOUNT', node_key(node_id, 'reservations'), '-inf', '(' .. integer(account.generation))
    return account.credit - (made_before - #waiting.h)
  end

  function weigh_unnamed(node_id, account)
    if account.roster_whole == 0 or (account.unexplained == 0 and account.credit <= 0) then return 0, 0, 0 end
    local waiting = read_unnamed(node_id, account.generation)
    if not waiting then return 0, 0, 0 end
    local cpu, memory, count = 0, 0, 0
    if #waiting.e > 0 and account.unexplained > 0 and account.doubts_until_ms == 0 then
      local ids = account.unexplained
      local doubted = redis.call('HLEN', node_key(node_id, 'doubts')) - account.doubts_named + account.counted_new
        + account.counted_old + #waiting.h
      cpu = discount_bounded(waiting.e, 'cpu', ids, account.allocated_cpu + account.paused_allocated_cpu
        - account.told_cpu - account.baseline_cpu, account.unsized_cpu == 0, doubted)
      memory = discount_bounded(waiting.e, 'memory', ids, account.allocated_memory_bytes
        + account.paused_allocated_memory_bytes - account.told_memory - account.baseline_memory,
        account.unsized_memory == 0, doubted)
      count = sum_of(sorted_sizes(waiting.e, 'count'), ids - doubted)
    end
    if #waiting.h > 0 and redis.call('EXISTS', node_key(node_id, 'sandboxes')) == 1 then
      local entered = surely_entered(node_id, account, waiting)
      cpu = cpu + sum_of(sorted_sizes(waiting.h, 'cpu'), entered)
      memory = memory + sum_of(sorted_sizes(waiting.h, 'memory'), entered)
      count = count + sum_of(sorted_sizes(waiting.h, 'count'), entered)
    end
    return cpu, memory, count
  end

  -- Takes a discount out of what a row counts as pending, in place of the one before.
  local function grant_discount(node_id, account, cpu, memory, count)
    local row = row_of(node_id)
    if row then
      row.pending_cpu = row.pending_cpu + account.discount_cpu - cpu
      row.pending_memory = row.pending_memory + account.discount_memory - memory
      row.pending_count = row.pending_count + account.discount_count - count
    end
    account.discount_cpu, account.discount_memory, account.discount_count = cpu, memory, count
  end

  before_saving = function()
    for node_id in pairs(dirty_accounts) do
      local account = account_of(node_id)
      if account then grant_discount(node_id, account, weigh_unnamed(node_id, account)) end
      dirty_accounts[node_id] = nil
    end
    for node_id, account in pairs(accounts) do
      if account then save_account(node_id, account) end
    end
  end
end
