-- The settings of node_resource_limit that are set, each a number.
local LIMITS = {
  'max_sandbox_count', 'max_sandbox_starting_count', 'max_cpu_used_percent', 'max_cpu_allocated_percent',
  'max_memory_used_percent', 'max_memory_allocated_percent', 'max_sandbox_count_including_paused',
  'max_allocated_cpu_including_paused', 'max_allocated_memory_bytes_including_paused',
}
