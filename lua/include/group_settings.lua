-- The budgets of groups and how they open, added to `settings`.
local function read_group_settings(settings)
  local found = redis.call('HMGET', KEYS[1], 'group_max_sandbox_count', 'group_max_cpu_count', 'group_max_memory_mb',
    'group_placement', 'max_open_groups')
  settings.group_max_sandbox_count = tonumber(found[1])
  settings.group_max_cpu_count = tonumber(found[2])
  settings.group_max_memory_mb = tonumber(found[3])
  settings.group_traits, settings.groups_rotation = strategy_traits(found[4]), rotation_of_groups(found[4])
  settings.max_open_groups = tonumber(found[5])
end
