-- Stands inside inline/decide where the settings call something scarce: a node that has it takes work that does not ask
-- for it only when no other node can.

-- What of the scarce labels and resources this request does not ask for: `names`, and `sets`, the label sets with one of
-- them. Nil: nothing.
local function spared_by(request, text)
  local names, sets = {}, {}
  for name in string.gmatch(text, '[^,]+') do
    local asked = request.resources and (request.resources[name] or 0) > 0
    local required = string.find(';' .. (request.required or ''), ';' .. name .. '=', 1, true)
    if not asked and not required then names[name] = true end
  end
  if not next(names) then return nil end
  for id, labels in pairs(as_table(redis.call('HGETALL', key('label_sets')))) do
    for name in string.gmatch(labels, '([^=;]+)=') do
      if names[name] then sets[id] = true end
    end
  end
  return { names = names, sets = sets }
end
