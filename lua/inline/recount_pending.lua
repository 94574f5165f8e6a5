-- inline/recount_pending.lua: what a node's row counts as pending, of each resource, against its open reservations.
-- Reads: count, cpu, further, memory, node_id, row, subject
-- Sets: nothing
if row then
  if row.pending_cpu ~= cpu or row.pending_memory ~= memory or row.pending_count ~= count then
    finding(subject, 'pending', string.format('its row counts %d CPUs, %d bytes, %d sandboxes as pending; '
      .. 'its open reservations hold %d, %d, %d', row.pending_cpu, row.pending_memory, row.pending_count, cpu, memory,
      count))
  end
  -- Further resources, one by one: what is pending of each, and what the order by free ones says.
  local names = {}
  for name in pairs(row.resources or {}) do names[name] = true end
  for name in pairs(further) do names[name] = true end
  for name in pairs(names) do
    local one = row.resources and row.resources[name]
    if (one and one.pending or 0) ~= (further[name] or 0) then
      finding(subject, 'pending', string.format('its row counts %d of %s as pending; its open reservations hold %d',
        one and one.pending or 0, name, further[name] or 0))
    end
    local noted, free = redis.call('ZSCORE', key('resource:' .. name), node_id), resources.free_on(row, name)
    if (noted and tonumber(noted) or nil) ~= free then
      finding(subject, 'resource', 'has ' .. shown(free) .. ' of ' .. name .. ' free, noted: ' .. shown(noted))
    end
  end
end
