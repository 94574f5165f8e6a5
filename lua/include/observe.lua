-- @include "include/new_rows"
-- @include "include/account"
-- @include "include/figures"
-- The figures a node last reported, or nil.
local function read_figures(node_id)
  local found = redis.call('HMGET', node_key(node_id), 'last_seen_ms', 'resources_reported', unpack(FIGURES))
  -- A node that is half taken off the list has said when, and nothing else any more.
  if not (found[1] and found[3]) then return nil end
  local figures = { last_seen_ms = tonumber(found[1]), resources = found[2] or nil }
  for index, name in ipairs(FIGURES) do figures[name] = tonumber(found[index + 2]) end
  figures.lowered_cpu, figures.lowered_memory = lowered_by(account_of(node_id))
  return figures
end
