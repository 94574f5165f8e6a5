-- Stands where include/heads and include/row_reads are seen: of the nodes that lack a capacity the one that has most of it
-- free, whose figures a refusal tells.
local nearest
do
  -- So many nodes are looked at.
  local LOOKED_AT = 32

  -- The first node of a row that `lacks` says yes to, and its score. Without it: the first.
  local function first_of(name, lacks, looked)
    local from, width = 0, lacks and 8 or 1
    while looked.count < LOOKED_AT do
      local found = row_reads.range(name, integer(from), integer(from + width - 1))
      for at = 1, #found, 2 do
        local node_id = string.sub(found[at], 31)
        looked.count = looked.count + 1
        if not lacks or lacks(node_id) then return node_id, tonumber(found[at + 1]) end
      end
      if #found < 2 * width then return nil end
      from = from + width
    end
  end

  -- Rows where nodes lack CPUs are those behind `final`; in the others they have the CPUs.
  local function rows_of(class, what)
    if what == 'cpu' then
      return math.max(0, class.final + ((class.step or 1) > 1 and 0 or 1)), class.last or math.huge, class.cpu
    end
    return 0, class.final, class.band
  end

  -- `what`: cpu | memory. Classes as include/scan has them, with `cpu` and `band`. Nil: none that was looked at; `opens`: in
  -- so many chunks of rows, when not in all.
  function nearest(classes, what, lacks, opens)
    local most, largest, chosen, looked = -math.huge, 0, nil, { count = 0 }
    opens = opens or math.huge
    -- Of equally much free the larger node.
    local function is_nearer(free, whole) return free > most or (free == most and whole > largest) end
    for _, class in ipairs(classes) do
      local tops, step = cpu_rows.classes[class.name], class.step or 1
      local first, last, whole = rows_of(class, what)
      for number = math.floor(first / cpu_rows.CHUNK), whole < 0 and -1 or math.min(#tops - 3, last / cpu_rows.CHUNK) do
        local top, scores = tops[number + 3], nil
        local bound = whole - (what == 'cpu' and math.max(first, number * cpu_rows.CHUNK) * step or top)
        if top < cpu_rows.EMPTY and opens > 0 and is_nearer(bound, whole) then
          scores, opens = cpu_rows.chunk_heads(class.name, number), opens - 1
        end
        for at = 1, scores and cpu_rows.CHUNK or 0 do
          local row = number * cpu_rows.CHUNK + at - 1
          bound = whole - (what == 'cpu' and row * step or scores[at])
          if scores[at] < cpu_rows.EMPTY and row >= first and row <= last and is_nearer(bound, whole) then
            local node_id, score = first_of(cpu_rows.key_of(class.name, row), lacks, looked)
            if node_id then most, largest, chosen = what == 'cpu' and bound or whole - score, whole, node_id end
          end
        end
      end
    end
    return chosen
  end
end
