-- @include "include/keys"
-- @include "include/time"
-- Where every rotation stands, and the last time used. Some count, the others name the node chosen last.
local function read_cursors()
  local found = redis.call('HMGET', key('rotations'), 'now', 'offset', 'ties', 'ordinary_ties', 'round_robin', 'ordinary',
    'groups', 'fallback', 'placed')
  return {
    now = found[1], offset = found[2], ties = found[3], ordinary_ties = found[4], round_robin = found[5] or nil,
    ordinary = found[6] or nil, groups = found[7] or nil, fallback = found[8] or nil,
    placed = found[9],
  }
end

local function is_counter(cursor)
  return cursor == 'ties' or cursor == 'ordinary_ties'
end
