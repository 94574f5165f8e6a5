-- An ordinary node (inline/straight): its row in `loads` as numbers, and where it stands in the index.
local ordinary_nodes = {}
do
  local ROW = '^(r,(%d+),(%d+),(%d+),(%d+),(%d+),(%d+),(%d+),)(%d+),(%d+),(%d+)([^,]*)$'

  -- The node of a row; nil: it is none of the ordinary ones.
  function ordinary_nodes.read(text, node_id)
    local fixed, cpu, memory, load, used, starting, running, paused, pending_cpu, pending_memory, pending_count, further =
      string.match(text, ROW)
    if not fixed then return nil end
    local tail = string.format('%010d%010d', running, paused) .. node_id
    local present = starting + pending_count
    return {
      fixed = fixed, cpu = tonumber(cpu), memory = tonumber(memory), load = load + pending_cpu, present = present,
      above = used + pending_memory - memory, pending_cpu = tonumber(pending_cpu),
      pending_memory = tonumber(pending_memory), pending_count = tonumber(pending_count), further = further, tail = tail,
      member = string.format('%010d', present) .. tail,
    }
  end

  -- Whether the index shows it where its row says that it is; else nothing may be written for it. `tops`: of the class.
  function ordinary_nodes.stands_at(node, found, tops)
    return node.member == found.member and node.load == found.row and node.cpu == found.item.class.cpu
      and node.memory >= tops[1] and node.memory <= tops[2]
  end

  -- So much more is pending on it. Returns its new score in a class.
  function ordinary_nodes.add(node, class, cpus, bytes)
    node.load, node.above, node.present = node.load + cpus, node.above + bytes, node.present + 1
    node.pending_cpu, node.pending_memory = node.pending_cpu + cpus, node.pending_memory + bytes
    node.pending_count = node.pending_count + 1
    node.member = string.format('%010d', node.present) .. node.tail
    return node.above + class.band
  end

  -- Its row.
  function ordinary_nodes.written(node)
    return node.fixed .. string.format('%d,%d,%d', node.pending_cpu, node.pending_memory, node.pending_count)
      .. node.further
  end
end
