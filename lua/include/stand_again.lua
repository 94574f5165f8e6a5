-- Stands inside record_heartbeat: puts a node back into the index that a stopped script, or somebody's hand, took out.
local function stand_again(node_id)
  local row = row_of(node_id)
  local place = row and cpu_rows.place_of(row, node_id)
  if row and row.resources then resources.note_free(node_id, nil, row) end
  if not place then return end
  local score = redis.call('ZSCORE', place.key, place.member)
  local head = cpu_rows.chunk_heads(place.class, math.floor(place.row / cpu_rows.CHUNK))[place.row % cpu_rows.CHUNK + 1]
  if not score or not cpu_rows.class_heads(place.class) or tonumber(score) ~= place.score or head > place.score then
    cpu_rows.move(node_id, place, place, rows[node_id].text)
  end
end
