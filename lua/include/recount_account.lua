-- @include "include/records"
-- @include "include/findings"
-- A node's account against the records of what its roster lists, and against its unnamed reservations.
local RECOUNTED_MAX = 2000
local SUMS = {
  'unexplained', 'baseline_ids', 'told_cpu', 'told_memory', 'unsized_cpu', 'unsized_memory', 'deleted_cpu',
  'deleted_memory',
}

-- What the account would be, were each listed record counted once; nil when there are too many to read at once.
local function sums_of_roster(node_id, account)
  if redis.call('SCARD', node_key(node_id, 'sandboxes')) > RECOUNTED_MAX then return nil end
  local kept, counted = {}, {}
  for _, name in ipairs(SUMS) do kept[name], account[name] = account[name], 0 end
  local listed = redis.call('SMEMBERS', node_key(node_id, 'sandboxes'))
  for first = 1, #listed, 500 do
    local some = {}
    for index = first, math.min(first + 499, #listed) do some[#some + 1] = listed[index] end
    for _, record in pairs(records_of(some)) do
      if record.node_id == node_id then count_record(record, 1) end
    end
  end
  for _, name in ipairs(SUMS) do counted[name], account[name] = account[name], kept[name] end
  return counted
end

local function recount_account(node_id, subject)
  local account = account_of(node_id)
  if not account then return end
  local counted = sums_of_roster(node_id, account)
  for _, name in ipairs(counted and SUMS or {}) do
    if account[name] ~= counted[name] then
      local found, true_sum = shown(account[name]), shown(counted[name])
      finding(subject, 'account', name .. ' is ' .. found .. ', its roster adds up to ' .. true_sum)
    end
  end
  local cpu, memory, count = weigh_unnamed(node_id, account)
  if account.discount_cpu ~= cpu or account.discount_memory ~= memory or account.discount_count ~= count then
    finding(subject, 'discount', string.format('its load is taken to hold %d CPUs, %d bytes, %d sandboxes of what has no '
      .. 'name; weighed anew it is %d, %d, %d', account.discount_cpu, account.discount_memory, account.discount_count,
      cpu, memory, count))
  end
end

-- Each open reservation without a sandbox is among the unnamed, with what it holds, and nothing else is.
local function recount_unnamed(node_id, subject, open)
  local known = as_table(redis.call('HGETALL', node_key(node_id, 'unnamed')))
  for id, held in pairs(open) do
    if known[id] ~= held then
      finding(subject, 'unnamed', 'reservation ' .. id .. ' has no sandbox and stands there as ' .. shown(known[id])
        .. ', not ' .. held)
    end
    known[id] = nil
  end
  for id in pairs(known) do finding(subject, 'unnamed', 'reservation ' .. id .. ' is not open or has a sandbox') end
end
