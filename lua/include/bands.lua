-- @include "include/heads"
-- How a class of nodes is cut: by CPUs into rows, by memory capacity into bands.
do
  local CPU_ROWS, BANDS = 16384, 64

  -- The foot of a band of memory capacity: 64 bands from one power of two to the next.
  function cpu_rows.band_of(memory)
    if memory <= 0 then return memory end
    local _, exponent = math.frexp(memory)
    local width = 2 ^ (exponent - 1) / BANDS
    return width > 1 and memory - memory % width or memory
  end

  -- How many CPUs one row of a class stands for, and its last row.
  function cpu_rows.rows_of(cpu)
    if cpu < 0 then return 1, 0 end
    if cpu <= CPU_ROWS / 2 then return 1, cpu > 32 and 2 * cpu or 64 end
    local step = math.ceil(cpu / CPU_ROWS)
    return step, math.min(CPU_ROWS, math.floor(2 * cpu / step))
  end
end
