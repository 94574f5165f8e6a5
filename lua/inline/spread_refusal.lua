-- inline/spread_refusal.lua: which candidates the spread keeps out.
-- Reads: HOLDERS_MAX, count_at, count_candidates, given, held, held_by_value, holders, is_candidate, use, value_by_id,
--   wanted
-- Sets: spread_refusal
local spread_refusal = { counts = count_at }

function spread_refusal.blocks(node_id, row)
  local ceiling, count = spread_refusal.ceiling, count_at(node_id, row)
  if not count or (ceiling and count > ceiling) then return true end
  return #holders >= HOLDERS_MAX and not held[node_id]
end

-- Of `left` candidates how many are not kept out. Until `restore` the request rules out what is.
function spread_refusal.narrow(left)
  local ceiling = spread_refusal.ceiling or -1
  if #holders >= HOLDERS_MAX then return 0 end
  if wanted.over ~= 'node' then
    local matches = {}
    for id, value in pairs(value_by_id) do
      if (held_by_value[value] or 0) <= ceiling and (not given.matches or given.matches[id]) then matches[id] = true end
    end
    use({ matches = matches })
    return count_candidates(matches, true)
  end
  local excluded = {}
  for node_id in pairs(given.excluded) do excluded[node_id] = true end
  for _, node_id in ipairs(holders) do
    if held[node_id] > ceiling and is_candidate(node_id, true) then excluded[node_id], left = true, left - 1 end
  end
  use({ excluded = excluded })
  return left
end

function spread_refusal.restore() use(given) end
