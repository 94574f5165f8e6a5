-- @include "include/scan"
-- @include "include/row_reads"
-- Among nodes of equal pressure those with the least (starting + pending, running, paused); equal ones take turns: a
-- counter picks. Each tied row is asked for its least counts, how many of its nodes have them, and where these stand.
-- So many rows are asked, and so many nodes of them all are looked at for theirs.
local ROWS_TIED, LOOKED_AT = 16, 32

-- Finds the nodes of a row that tie: `tied`, and either their `list` or the key and rank of the first. Returns their counts.
-- Nil: its head is not what the array says, which is put right. `share`: so many are looked at.
local function find_tied(item, least, picker, share)
  local class = item.class
  item.key = cpu_rows.key_of(class.name, item.row)
  if not item.list then
    local head = row_reads.head(item.key)
    if not head[1] or tonumber(head[2]) ~= item.score then
      cpu_rows.set_head(class.name, item.row, head[1] and tonumber(head[2]) or EMPTY)
      cpu_rows.flush()
      return nil
    end
    item.head = head
    if not class.picky and (not head[3] or math.max(item.cpu, memory_pressure(class, tonumber(head[4]))) > least) then
      item.list, item.tied = { head[1] }, 1
      return string.sub(head[1], 1, 30)
    end
  end
  -- @inline "include/tied_nodes"
  return find_among(item, least, picker, share)
end

local function member_in_turn(item, turn)
  if item.list then return item.list[turn + 1] end
  return row_reads.at(item.key, (item.first or 0) + turn)
end

-- Of rows that tie the node whose turn it is, and where it was found: `turn`, whose of those that tie in its row it is;
-- `rank`, where that was counted.
local function take_turn(tied, total, counter)
  local item, turn, member = tied[1], counter % total, nil
  if tied[2] then
    -- @inline "include/tied_rows"
    item, turn, member = turn_among(tied, total, turn)
  end
  return {
    key = item.key, class = item.class.name, row = item.row, member = member or member_in_turn(item, turn), item = item,
    turn = turn, rank = not item.list and (item.first or 0) + turn or nil,
  }
end

-- The node whose turn it is among rows that tie. Nil: an array was put right; search again.
local function pick_in_turn(found, least, picker)
  if not found[2] then
    local item = found[1]
    return find_tied(item, least, picker, LOOKED_AT) and take_turn(found, item.tied, picker.counter)
  end
  local tied, total, counts
  local asked = math.min(#found, ROWS_TIED)
  local share = math.floor(LOOKED_AT / asked)
  for index = 1, asked do
    local item = found[index]
    local own = find_tied(item, least, picker, share)
    if not own then return nil end
    if not counts or own < counts then
      tied, total, counts = { item }, item.tied, own
    elseif own == counts then
      tied[#tied + 1], total = item, total + item.tied
    end
  end
  return take_turn(tied, total, picker.counter)
end
