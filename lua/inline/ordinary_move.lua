-- inline/ordinary_move.lua: where an ordinary node that was `found` goes in the index with `cpus` and `bytes` more,
-- from the `text` of its row. `meets`: the index shows it as its row does; else nothing may be written for it.
-- Reads: bytes, cpus, found, text
-- Sets: after, class, cpu, fixed, further, load, meets, member, memory, new_member, new_row, new_score, new_text,
--   pending_count, pending_cpu, pending_memory, row, score, starting, tops, used
local class, row, member = found.item.class, found.row, found.member
local fixed, cpu, memory, load, used, starting, after, pending_cpu, pending_memory, pending_count, further = string.match(
  text, '^(r,(%d+),(%d+),(%d+),(%d+),(%d+)(,%d+,%d+,))(%d+),(%d+),(%d+)([^,]*)$')
memory = tonumber(memory or '')
local tops = cpu_rows.classes[class.name]
local meets = fixed and tonumber(cpu) == class.cpu and memory >= tops[1] and memory <= tops[2]
  and load + pending_cpu == row and starting + pending_count == tonumber(string.sub(member, 1, 10))
  and string.format(',%d,%d,', string.sub(member, 11, 20), string.sub(member, 21, 30)) == after
local score, new_row, new_score, new_member, new_text
if meets then
  score = used + pending_memory - memory + class.band
  new_row, new_score = row + cpus, score + bytes
  new_member = string.format('%010d', starting + pending_count + 1) .. string.sub(member, 11)
  new_text = fixed .. string.format('%d,%d,%d', pending_cpu + cpus, pending_memory + bytes, pending_count + 1) .. further
end
