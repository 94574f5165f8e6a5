-- Stands inside functions that know FIGURES (include/figures).
-- Nothing reported is nothing on the node, to the limits of a creation.
local function unreported_figures()
  local figures = {}
  for _, name in ipairs(FIGURES) do figures[name] = 0 end
  return figures
end
