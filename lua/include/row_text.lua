-- @include "include/keys"
-- @include "include/reply"
-- @include "include/resources"
-- A node's row in `loads` is all that ranking reads of it, in one line:
--   pool,cpu_capacity,memory_capacity,cpu_load,memory_load,starting,running,paused,
--   pending_cpu,pending_memory,pending_count[,cpu_most,memory_most,count_most,open][;label set[;name=total:load:pending…]]
-- Capacities are effective ones (-1: not known), loads are active + paused, memory is bytes.
-- pool: r ready, c connecting, u unhealthy, x unhealthy and over a limit, o over a limit,
--       l lingering, w waiting (known before the ledger was lost, not heard of since);
--       in capitals: the node refuses what it is given, and is avoided for a while (include/avoidance).
-- The last four stand where node_resource_limit bounds what a creation may bring the node to (include/limits):
-- CPU load and memory load with what is pending, and sandboxes starting, running and pending; -1: no bound. `open`
-- says which capacities keep no creation out: 1 that of CPUs, 2 that of memory, 3 both.
-- The label set's id (include/labels; empty: the node has none) and further resources (include/resources) stand where there
-- are any.
local parse_row
do
  local ROW = '^(%a),(%-?%d+),(%-?%d+),(%d+),(%d+),(%d+),(%d+),(%d+),(%d+),(%d+),(%d+)([^;]*)(.*)$'

  function parse_row(text)
    local pool, cpu_capacity, memory_capacity, cpu_load, memory_load, starting, running, paused,
      pending_cpu, pending_memory, pending_count, bounds, further = string.match(text, ROW)
    if not pool then return nil end
    local row = {
      pool = string.lower(pool), avoided = pool < 'a' or nil,
      cpu_capacity = tonumber(cpu_capacity), memory_capacity = tonumber(memory_capacity),
      cpu_load = tonumber(cpu_load), memory_load = tonumber(memory_load),
      starting = tonumber(starting), running = tonumber(running), paused = tonumber(paused),
      pending_cpu = tonumber(pending_cpu), pending_memory = tonumber(pending_memory),
      pending_count = tonumber(pending_count),
    }
    if further ~= '' then
      local labels, rest = string.match(further, '^;(%d*)(.*)$')
      row.labels, row.resources = labels ~= '' and labels or nil, rest ~= '' and resources.of_text(rest) or nil
      if not labels or (rest ~= '' and not row.resources) then return nil end
    end
    if bounds ~= '' then
      -- Before format 3 a row said nothing of open capacities.
      local cpu_most, memory_most, count_most, open = string.match(bounds, '^,(%-?%d+),(%-?%d+),(%-?%d+),?(%d?)$')
      if not cpu_most then return nil end
      row.bounded, row.cpu_most, row.memory_most, row.count_most =
        true, tonumber(cpu_most), tonumber(memory_most), tonumber(count_most)
      row.open = tonumber(open) or 0
    end
    return row
  end
end

-- The pool as rows and sets have it.
local function pool_letter(row)
  return row.avoided and string.upper(row.pool) or row.pool
end

local function format_row(row)
  local text = string.format('%s,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d', pool_letter(row),
    row.cpu_capacity, row.memory_capacity, row.cpu_load, row.memory_load, row.starting,
    row.running, row.paused, row.pending_cpu, row.pending_memory, row.pending_count)
  if row.bounded then
    text = text .. string.format(',%d,%d,%d,%d', row.cpu_most, row.memory_most, row.count_most, row.open)
  end
  local further = row.resources and resources.row_text(row.resources) or ''
  if not row.labels and further == '' then return text end
  return text .. ';' .. (row.labels or '') .. further
end

-- Fixed width, so that the order of bytes is the order of (starting, running, paused, id).
local function row_member(row, node_id)
  return string.format('%010d%010d%010d', row.starting + row.pending_count,
    row.running, row.paused) .. node_id
end
