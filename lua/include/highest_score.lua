-- Stands inside functions that know memory_pressure (include/scan).
-- The highest score of a class whose pressure is not above this one.
local function highest_score(class, pressure)
  local score = math.floor(pressure * class.per_memory - class.per)
  while memory_pressure(class, score + 1) <= pressure do score = score + 1 end
  while memory_pressure(class, score) > pressure do score = score - 1 end
  return math.min(score, class.most)
end
