-- Stands inside schedule_sandbox: a script was stopped half-way, and left a node where it does not belong.
local function distrust(node_id, row, context)
  if not row then
    for _, name in ipairs(node_pools.all_parts()) do redis.call('ZREM', key(name), node_id) end
  end
  save_rows()
  local found, place = context.found, row and cpu_rows.place_of(row, node_id)
  if found and not stands_at(place, found) then remove_found(found) end
  if place then cpu_rows.move(node_id, place, place, rows[node_id].text) end
  return { 'again', 'index' }
end
