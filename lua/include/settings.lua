-- What all replicas agreed on. A ledger without it was never opened, or has been emptied.
local SETTINGS = {
  'strategy', 'admission', 'report_ttl_ms', 'placement_reservation_ttl_ms', 'overcommit_cpu',
  'overcommit_memory', 'locality_enabled', 'cold_default_cpu_count', 'cold_default_memory_mb',
  'refresh_after', 'binding_ttl_ms', 'binding_grace_ms',
}
local GROUP_SETTINGS = {
  'group_max_sandbox_count', 'group_max_cpu_count', 'group_max_memory_mb', 'group_placement',
  'max_open_groups',
}

-- The settings a placement needs, or nil when the ledger has none.
local function read_settings()
  local found = redis.call('HMGET', KEYS[1], unpack(SETTINGS))
  if not found[1] then return nil end
  local settings = {
    strategy = found[1],
    admits = found[1] == 'least_loaded' or found[2] == 'always',
    report_ttl_ms = tonumber(found[3]),
    placement_reservation_ttl_ms = tonumber(found[4]),
    cpu_unlimited = found[5] == 'unlimited',
    memory_unlimited = found[6] == 'unlimited',
    locality = found[7] == '1',
    cold_default_cpu_count = tonumber(found[8]),
    cold_default_memory_mb = tonumber(found[9]),
    refresh_after = found[10] or nil,
    binding_ttl_ms = tonumber(found[11]),
    binding_grace_ms = tonumber(found[12]),
  }
  if found[1] == 'grouped_round_robin' then
    local groups = redis.call('HMGET', KEYS[1], unpack(GROUP_SETTINGS))
    settings.group_max_sandbox_count = tonumber(groups[1])
    settings.group_max_cpu_count = tonumber(groups[2])
    settings.group_max_memory_mb = tonumber(groups[3])
    settings.group_placement = groups[4]
    settings.max_open_groups = tonumber(groups[5])
  end
  return settings
end
