-- The numbers of a report, in the order that scripts take them.
local FIGURES = {
  'cpu_count', 'memory_total_bytes', 'allocated_cpu', 'allocated_memory_bytes', 'paused_allocated_cpu',
  'paused_allocated_memory_bytes', 'cpu_percent', 'memory_used_bytes', 'sandbox_count',
  'sandbox_starting_count', 'paused_sandbox_count', 'create_successes', 'create_fails', 'reported_at_unix_ms',
}
