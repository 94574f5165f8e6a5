-- @include "include/account"
-- What a node's hash keeps, and what goes, when its last report counts no more.

-- Of the account (include/account), what ended or was told since the last report.
local RECENT = { 'forks_new', 'ends_new', 'counted_new', 'counted_old', 'doubts_named', 'doubts_until_ms' }

-- The node's hash was written anew: its account is read again.
local function close_account(node_id)
  accounts[node_id] = nil
end

-- The process that reports is one of the earlier ones from now on, so that a late call of it is known as such once
-- another reports.
local function remember_process(node_id)
  -- @inline "include/instances"
  local known = as_table_of(node_key(node_id), 'service_instance_id', 'sequence', 'instances')
  if known.service_instance_id then redis.call('HSET', node_key(node_id), 'instances', replaced_by(known, '')) end
end

-- Takes all but what outlives the observation of a node out of its hash, once its account is saved: sums over a roster
-- that is still kept, and who has reported. `kept`: further fields that stay.
local function forget_observation(node_id, kept)
  remember_process(node_id)
  local stays, gone = {}, {}
  for _, name in ipairs({ 'unexplained', 'told_cpu', 'told_memory', 'unsized_cpu', 'unsized_memory', 'deleted_cpu',
    'deleted_memory', 'baseline_generation', 'baseline_ids', 'roster_edits', 'instances', 'labels_configured', 'labels_api',
    'labels_kubernetes', unpack(RECENT) }) do
    stays[name] = true
  end
  for _, name in ipairs(kept) do stays[name] = true end
  for _, name in ipairs(redis.call('HKEYS', node_key(node_id))) do
    if not stays[name] then gone[#gone + 1] = name end
  end
  if gone[1] then redis.call('HDEL', node_key(node_id), unpack(gone)) end
  close_account(node_id)
end
