-- Every key of a domain carries the tag of the one key the caller passes.
local prefix = string.sub(KEYS[1], 1, -1 - #'shared_settings')

local function key(name)
  return prefix .. name
end

-- A colon in a node id would run into the parts below a node, so it is escaped.
local function node_key(node_id, part)
  if string.find(node_id, '[%%:]') then
    node_id = string.gsub(string.gsub(node_id, '%%', '%%25'), ':', '%%3A')
  end
  if part then return prefix .. 'node:' .. node_id .. ':' .. part end
  return prefix .. 'node:' .. node_id
end

local function reservation_key(reservation_id)
  return prefix .. 'reservation:' .. reservation_id
end
