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

-- What a node has of a spread key stays in its place (inline/spread_places) until its next report tells where it is:
--   node:<id>, field labels_before   the labels it had when its report was forgotten, and of earlier times those it lacked;
--                                    at most 32, twice what a node may have
local function remember_labels(node_id)
  local names, parts = {}, {}
  for _, text in ipairs(redis.call('HMGET', node_key(node_id), 'labels', 'labels_before')) do
    for name, value in string.gmatch(text or '', '([^=;]+)=([^;]+)') do
      if not names[name] and #parts < 32 then names[name], parts[#parts + 1] = true, name .. '=' .. value end
    end
  end
  if parts[1] then redis.call('HSET', node_key(node_id), 'labels_before', table.concat(parts, ';')) end
end

-- Takes all but what outlives the observation of a node out of its hash, once its account is saved: sums over a roster
-- that is still kept, and who has reported. `kept`: further fields that stay.
local function forget_observation(node_id, kept)
  remember_process(node_id)
  remember_labels(node_id)
  local stays, gone = {}, {}
  for _, name in ipairs({ 'unexplained', 'told_cpu', 'told_memory', 'unsized_cpu', 'unsized_memory', 'deleted_cpu',
    'deleted_memory', 'baseline_generation', 'baseline_ids', 'roster_edits', 'instances', 'labels_configured', 'labels_api',
    'labels_kubernetes', 'labels_before', unpack(RECENT) }) do
    stays[name] = true
  end
  for _, name in ipairs(kept) do stays[name] = true end
  for _, name in ipairs(redis.call('HKEYS', node_key(node_id))) do
    if not stays[name] then gone[#gone + 1] = name end
  end
  if gone[1] then redis.call('HDEL', node_key(node_id), unpack(gone)) end
  close_account(node_id)
end
