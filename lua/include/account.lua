-- @include "include/rows"
-- What the last report of a node and the reservations made before it add up to: fields of the node's hash,
-- read once, changed in memory and written together with the rows.
--   roster_whole            1: the roster in `sandboxes` is that of the last report; else nothing is lowered by it
--   unexplained             listed ids that nobody told and that are not baseline (k)
--   told_*, unsized_*       sizes of listed ids that are told; how many of these lack that size
--   deleted_*               sizes of listed, told ids that a delete event ended, by which the load is lowered
--   baseline_*              the newest baseline: its generation, how many of its ids are listed and still untold, and
--                           the load that told ids did not explain then, less the sizes of those told since
--   discount_*              what the load already holds of open reservations that have no name
--   entered, credit         creates seen by counts (-1: this process has no roster installed yet), and how many of
--                           them no ended reservation has taken
--   shown, counts, fails    creates that the last counted report shows, its successes and fails, its fails
--   pauses                  1: this process has paused a sandbox, so what starts may be a resume
--   forks_*, ends_new       forks told, and named reservations ended, that a report may not have shown yet
--   counted_*               reservations settled by counts, which may own a listed id
--   doubts_*                doubts of kind n; until when there are more than are kept
--   recount_*               how far a count of what is held came, and what it found (include/counting)
local REPORTED = {
  'generation', 'allocated_cpu', 'allocated_memory_bytes', 'paused_allocated_cpu', 'paused_allocated_memory_bytes',
}
local accounts = {}

local account_of, lowered_by, save_account
do
  local ACCOUNT = {
    'roster_whole', 'unexplained', 'told_cpu', 'told_memory', 'unsized_cpu', 'unsized_memory', 'deleted_cpu',
    'deleted_memory', 'baseline_generation', 'baseline_ids', 'baseline_cpu', 'baseline_memory', 'discount_cpu',
    'discount_memory', 'discount_count', 'entered', 'credit', 'shown', 'counts', 'fails', 'pauses', 'forks_new',
    'ends_new', 'counted_new', 'counted_old', 'doubts_named', 'doubts_until_ms',
    'recount_to', 'recount_cpu', 'recount_memory', 'recount_count',
  }

  -- The account of a node that has a hash, or nil.
  function account_of(node_id)
    local known = accounts[node_id]
    if known ~= nil then return known or nil end
    local names = { unpack(ACCOUNT) }
    for _, name in ipairs(REPORTED) do names[#names + 1] = name end
    names[#names + 1] = 'endpoint'
    local found = redis.call('HMGET', node_key(node_id), unpack(names))
    if not found[#names] then
      accounts[node_id] = false
      return nil
    end
    local account = { stored = {} }
    for index, name in ipairs(ACCOUNT) do
      account.stored[name] = found[index] or (name == 'entered' and '-1' or '0')
      account[name] = tonumber(account.stored[name])
    end
    for index, name in ipairs(REPORTED) do account[name] = tonumber(found[#ACCOUNT + index] or '') or 0 end
    account.lowered_cpu = account.roster_whole * account.deleted_cpu
    account.lowered_memory = account.roster_whole * account.deleted_memory
    accounts[node_id] = account
    return account
  end

  -- By how much deleted sandboxes lower the load of the last report.
  function lowered_by(account)
    if not account or account.roster_whole == 0 then return 0, 0 end
    return account.deleted_cpu, account.deleted_memory
  end

  -- Writes what changed of an account, and lowers the load in the node's row by what was deleted since.
  function save_account(node_id, account)
    local row = row_of(node_id)
    local cpu, memory = lowered_by(account)
    if row and (cpu ~= account.lowered_cpu or memory ~= account.lowered_memory) then
      row.cpu_load = math.max(0, account.allocated_cpu + account.paused_allocated_cpu - cpu)
      row.memory_load = math.max(0, account.allocated_memory_bytes + account.paused_allocated_memory_bytes - memory)
    end
    account.lowered_cpu, account.lowered_memory = cpu, memory
    local changed = {}
    for _, name in ipairs(ACCOUNT) do
      local text = integer(account[name])
      if text ~= account.stored[name] then
        changed[#changed + 1], changed[#changed + 2] = name, text
        account.stored[name] = text
      end
    end
    -- The next report is no usual one (inline/straight_report). Whatever ends a reservation changes the account, or makes a
    -- doubt. `explained`: by growth that it explains (explain_growth), which may be all that changed.
    if changed[1] or account.explained then redis.call('HSET', node_key(node_id), 'still', '', unpack(changed)) end
  end
end
