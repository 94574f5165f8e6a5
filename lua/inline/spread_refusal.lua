-- inline/spread_refusal.lua: which candidates the spread keeps out.
-- Reads: HOLDERS_MAX, count_at, count_candidates, given, held, held_by_value, holders, is_candidate, use, value_by_id,
--   wanted
-- Sets: keeps_out, spread_refusal
local spread_refusal = { counts = count_at }

function spread_refusal.blocks(node_id, row)
  local ceiling, count = spread_refusal.ceiling, count_at(node_id, row)
  if not count or (ceiling and count > ceiling) then return true end
  return #holders >= HOLDERS_MAX and not held[node_id]
end

-- What is told of a place that has `count` already. One that has not the label is none, and takes nothing.
function spread_refusal.figures(count)
  if #holders >= HOLDERS_MAX then return { 'spread_nodes', integer(#holders), '0', '1', integer(HOLDERS_MAX) } end
  if not count or not spread_refusal.ceiling then return { 'spread', '0', '0', '1', '0' } end
  return { 'spread', integer(count), '0', '1', integer(spread_refusal.ceiling + 1) }
end

local function keeps_out(count)
  if not spread_refusal.fewest or count < spread_refusal.fewest then spread_refusal.fewest = count end
end

-- `fewest`: of the places that are kept out, what the one with least has.
-- Of `left` candidates how many are not kept out. Until `restore` the request rules out what is.
function spread_refusal.narrow(left)
  local ceiling = spread_refusal.ceiling or -1
  if #holders >= HOLDERS_MAX then
    keeps_out(0)
    return 0
  end
  if wanted.over ~= 'node' then
    local matches = {}
    for id, value in pairs(value_by_id) do
      local count, asked = held_by_value[value] or 0, not given.matches or given.matches[id]
      if count <= ceiling and asked then
        matches[id] = true
      elseif asked and count_candidates({ [id] = true }, true) > 0 then
        keeps_out(count)
      end
    end
    use({ matches = matches })
    return count_candidates(matches, true)
  end
  local excluded = {}
  for node_id in pairs(given.excluded) do excluded[node_id] = true end
  for _, node_id in ipairs(holders) do
    if held[node_id] > ceiling and is_candidate(node_id, true) then
      excluded[node_id], left = true, left - 1
      keeps_out(held[node_id])
    end
  end
  use({ excluded = excluded })
  return left
end

function spread_refusal.restore() use(given) end
