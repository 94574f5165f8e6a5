-- An ordinary node (inline/straight): its row in `loads` in parts, and where it stands in the index.
--   fixed, further   what placing does not change of its text
--   pending_cpu, pending_memory, pending_count   what does
--   load, above      its row in the index, and by how much the memory load with what is pending is above the capacity
--   member           its entry in that row: how many are `begun`, and what placing does not change, its `tail`
local ordinary_nodes
do
  local ROW = '^(r,(%d+),(%d+),(%d+),(%d+),(%d+),(%d+),(%d+),)(%d+),(%d+),(%d+)([^,]*)$'

  ordinary_nodes = {
    -- The node of a row where the index shows it so, in `found`; else nil, and nothing may be written for it.
    -- `tops`: of its class.
    read = function(text, node_id, found, tops)
      local fixed, cpu, memory, load, used, starting, running, paused, pending_cpu, pending_memory, pending_count, further =
        string.match(text, ROW)
      if not fixed then return nil end
      -- Each is read as a number once; reading it takes longer than all that is done with it.
      pending_cpu, pending_memory, pending_count = pending_cpu + 0, pending_memory + 0, pending_count + 0
      memory, load = memory + 0, load + pending_cpu
      local begun = starting + pending_count
      local member = string.format('%010d%010d%010d', begun, running, paused) .. node_id
      if member ~= found.member or load ~= found.row or cpu + 0 ~= found.item.class.cpu
        or memory < tops[1] or memory > tops[2] then
        return nil
      end
      return {
        fixed = fixed, further = further, pending_cpu = pending_cpu, pending_memory = pending_memory,
        pending_count = pending_count, load = load, above = used + pending_memory - memory, member = member,
        begun = begun, tail = string.sub(member, 11),
      }
    end,

    -- So much more is pending on it. Returns its new score in a class.
    add = function(node, class, cpus, bytes)
      node.load, node.above = node.load + cpus, node.above + bytes
      node.pending_cpu, node.pending_memory = node.pending_cpu + cpus, node.pending_memory + bytes
      node.pending_count = node.pending_count + 1
      node.begun = node.begun + 1
      node.member = string.format('%010d', node.begun) .. node.tail
      return node.above + class.band
    end,

    -- Its row.
    written = function(node)
      return node.fixed .. string.format('%d,%d,%d', node.pending_cpu, node.pending_memory, node.pending_count)
        .. node.further
    end,
  }
end
