-- @include "include/cursors"
-- @include "include/rates"
local turns = {}
-- Moves the rotation of a decision on, in memory, and counts a placement.
function turns.move(cursors, request, context, node_id)
  local moves = context.moves
  cursors.moved = cursors.moved or {}
  if request.creation then
    cursors.placed, cursors.moved.placed = count_placed(cursors.placed, context.now), true
  end
  if not moves then return end
  cursors[moves] = is_counter(moves) and integer((tonumber(cursors[moves] or '') or 0) + 1) or node_id
  cursors.moved[moves] = true
end

-- Writes the rotations that moved, and the time.
function turns.save(cursors, now)
  local fields = { 'now', integer(now), 'offset', integer(clock_offset) }
  for name in pairs(cursors.moved or {}) do fields[#fields + 1], fields[#fields + 2] = name, cursors[name] end
  redis.call('HSET', key('rotations'), unpack(fields))
end
