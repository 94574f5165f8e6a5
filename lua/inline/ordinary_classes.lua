-- inline/ordinary_classes.lua: the classes whose nodes may take `cpus` and `bytes`, as include/scan has them; one row is one
-- CPU, and the first may be chosen.
-- `plain`: none of all classes has limits, uneven memory, or more CPUs than rows.
-- Reads: bytes, cpus, listed
-- Sets: classes, plain
local classes, plain = {}, true
for at = 1, #listed, 2 do
  local name = listed[at]
  if string.sub(name, 1, 2) == 'r,' then
    local cpu, band, marks = string.match(name, '^r,[^,]+,(%-?%d+),(%-?%d+),[^,]+,(%a*)$')
    local tops = cpu_rows.classes[name] or cpu_rows.unpack(listed[at + 1])
    cpu_rows.classes[name] = tops
    cpu, band = tonumber(cpu), tonumber(band)
    if marks ~= '' or not cpu or cpu == 0 or cpu > 16384 or tops[1] <= 0
      or tops[2] - tops[1] > tops[1] * EVEN then
      plain = false
      break
    elseif cpu > 0 and band > 0 and cpu >= cpus then
      -- Nodes of which one capacity is not known rank behind all these.
      classes[#classes + 1] = {
        name = name, cpu = cpu, band = band, final = cpu - cpus, most = band - bytes, per_cpu = cpu, per_memory = tops[1],
        per = tops[1] - band + bytes,
      }
    end
  end
end
