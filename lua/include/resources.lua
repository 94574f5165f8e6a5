-- @include "include/keys"
-- Further resources, beside CPUs and memory: any name that the settings list, and `disk`. They admit and do not rank, so all
-- that is to be known of them is here; nothing else knows one by its name.
--   amounts    name → amount, as text 'name=amount;name=amount'
--   of a row   name → { total, load, pending }; total -1: not known. What is not reported is 0, and of `disk` not known,
--              which fits.
--   resource:<name>   zset: node → what is free of it on the node
local resources = { BUILT_IN = 'disk' }
do
  -- 2^53 - 1: beyond it a sum is not exact any more, so that nothing could be given back from it.
  local MOST = 9007199254740991

  local function names_of(amounts)
    local names = {}
    for name in pairs(amounts or {}) do names[#names + 1] = name end
    table.sort(names)
    return names
  end

  -- Nil for no text.
  function resources.amounts(text)
    local amounts
    for name, amount in string.gmatch(text or '', '([^=;]+)=(%d+)') do
      amounts = amounts or {}
      amounts[name] = tonumber(amount)
    end
    return amounts
  end

  function resources.written(amounts)
    local parts = {}
    for index, name in ipairs(names_of(amounts)) do parts[index] = name .. '=' .. string.format('%d', amounts[name]) end
    return table.concat(parts, ';')
  end

  -- The end of a row's text, and back; nil where it cannot be read.
  function resources.row_text(all)
    local parts = {}
    for index, name in ipairs(names_of(all)) do
      parts[index] = string.format(';%s=%d:%d:%d', name, all[name].total, all[name].load, all[name].pending)
    end
    return table.concat(parts)
  end

  function resources.of_text(text)
    local all = {}
    local rest = string.gsub(text, ';([^=;]+)=(%-?%d+):(%d+):(%-?%d+)', function(name, total, load, pending)
      all[name] = { total = tonumber(total), load = tonumber(load), pending = tonumber(pending) }
      return ''
    end)
    return rest == '' and all or nil
  end

  -- Those that the settings list, and the one that is built in: name → true.
  function resources.configured(text)
    local known = { [resources.BUILT_IN] = true }
    for name in string.gmatch(text or '', '[^,]+') do known[name] = true end
    return known
  end

  -- Of what a node reports, as text 'name=total:allocated;…', what its row says; `before`: the row's, for what is pending.
  function resources.observed(before, configured, reported)
    local all, count = {}, 0
    for name, total, load in string.gmatch(reported or '', '([^=;]+)=(%d+):(%d+)') do
      if configured[name] then
        all[name], count = { total = tonumber(total), load = tonumber(load), pending = 0 }, count + 1
      end
    end
    for name, one in pairs(before or {}) do
      if one.pending ~= 0 then
        if not all[name] then count = count + 1 end
        all[name] = all[name] or { total = name == resources.BUILT_IN and -1 or 0, load = 0, pending = 0 }
        all[name].pending = one.pending
      end
    end
    return count > 0 and all or nil
  end

  -- Adds (`sign` 1) or takes back (-1) what is held on the node of a row.
  function resources.hold(row, amounts, sign)
    for name, amount in pairs(amounts or {}) do
      row.resources = row.resources or {}
      local one = row.resources[name] or { total = name == resources.BUILT_IN and -1 or 0, load = 0, pending = 0 }
      row.resources[name], one.pending = one, one.pending + sign * amount
    end
  end

  -- What is pending on the node of a row is this, all of it. Whether it said otherwise.
  function resources.set_pending(row, amounts)
    local before = {}
    for name, one in pairs(row.resources or {}) do before[name], one.pending = one.pending ~= 0 and one.pending or nil, 0 end
    resources.hold(row, amounts, 1)
    return resources.written(before) ~= resources.written(amounts)
  end

  -- Adds to a sum what an open reservation holds. `held_resources` is there only once it holds none.
  function resources.add_held(sum, reservation)
    if not reservation.resources or reservation.held_resources then return end
    for name, amount in pairs(resources.amounts(reservation.resources)) do sum[name] = (sum[name] or 0) + amount end
  end

  -- The first of the resources asked for that the node has not enough of; nil: it has all.
  function resources.lacking(row, amounts)
    for _, name in ipairs(names_of(amounts)) do
      local one = row.resources and row.resources[name]
      local total = one and one.total or (name == resources.BUILT_IN and -1 or 0)
      local taken = one and one.load + one.pending or 0
      if amounts[name] > 0 and amounts[name] > (total < 0 and MOST or total) - taken then return name end
    end
    return nil
  end

  -- Which of them a node has, as the name of its class says it.
  function resources.presence(row)
    local present = {}
    for _, name in ipairs(names_of(row.resources)) do
      if row.resources[name].total > 0 then present[#present + 1] = name end
    end
    return present[1] and table.concat(present, '+') or '-'
  end

  -- Whether a class with this presence can have what is asked for.
  function resources.may_have(presence, amounts)
    for name, amount in pairs(amounts) do
      if amount > 0 and name ~= resources.BUILT_IN
        and not string.find('+' .. presence .. '+', '+' .. name .. '+', 1, true) then
        return false
      end
    end
    return true
  end

  local function free_of(row, name)
    local one = row and row.resources and row.resources[name]
    return one and one.total > 0 and one.total - one.load - one.pending or nil
  end

  -- What is free on a node, as far as it changed; with `before` nil all of it.
  function resources.note_free(node_id, before, row)
    for _, name in ipairs(names_of(before and before.resources)) do
      if free_of(before, name) and not free_of(row, name) then redis.call('ZREM', key('resource:' .. name), node_id) end
    end
    for _, name in ipairs(names_of(row and row.resources)) do
      local free = free_of(row, name)
      if free and free ~= free_of(before, name) then
        redis.call('ZADD', key('resource:' .. name), string.format('%d', free), node_id)
      end
    end
  end

  function resources.free_on(row, name) return free_of(row, name) end
end
