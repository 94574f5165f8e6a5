-- inline/ordinary_batch.lua: a batch of ordinary creations (inline/straight), decided before anything is written. It ends
-- the script when it could decide every one of them; whatever is out of the ordinary (`break`) is left to the text that
-- follows, which decides the same.
-- Reads: nothing
-- Sets: stored
local stored = read_stored()
repeat
  -- @inline "inline/ordinary"
  -- @inline "inline/several"
  -- @inline "include/batch_record"
  local batch_id, creations, refused, ordinary = ARGV[2], {}, {}, true
  do
    -- The forms, of which nil is none of the ordinary ones.
    local forms, at = {}, 11
    for number = 1, tonumber(ARGV[10]) do
      local kind, cpus, mib, template_id, origin = unpack(ARGV, at + 1, at + 5)
      local length = tonumber(ARGV[at])
      local asks_more = ARGV[at + 7] ~= '' or ARGV[at + 8] ~= '' or ARGV[at + 9] ~= '' or ARGV[at + 10] ~= '0'
      local near = length > 10 and stored[9] == '1'
      if kind ~= 'ordinary' and not asks_more and not near and not (origin ~= '' and tonumber(stored[14] or '')) then
        forms[number] = several.form(kind, cpus, mib, template_id, origin)
      end
      at = at + length + 1
    end
    for number = 1, tonumber(ARGV[at]) do
      local form = forms[tonumber(ARGV[at + 3])]
      creations[number], ordinary = { id = ARGV[at + 1], form = form }, ordinary and form and ARGV[at + 2] == ''
      at = at + 3
    end
  end
  if not ordinary then break end
  do
    -- One that was decided before, also in part, is told again below; a key of a single placement is refused there.
    local known = { prefix .. 'batch:' .. batch_id, reservation_key(batch_record.single_of(batch_id)) }
    for _, creation in ipairs(creations) do known[#known + 1] = reservation_key(creation.id) end
    if call('EXISTS', unpack(known)) > 0 then break end
  end
  local terms, undecided, ended = several.terms(ARGV[3], unpack(ARGV, 6, 9)), false, nil
  for index, creation in ipairs(creations) do
    local form = creation.form
    local node_id, why = several.place(form, #creations - index)
    if node_id then
      several.hold(terms, form, creation.id, node_id, index)
    elseif not why then
      undecided = true
      break
    elseif ARGV[4] == 'all' then
      several.held, several.placed, ended = {}, 0, why
      break
    else
      refused[#refused + 1] = { index - 1, unpack(why, 3) }
    end
  end
  if undecided then break end
  several.write()
  if ended then return ended end
  local placed = {}
  for number, held in ipairs(several.held) do
    placed[number] = { held.number - 1, held.node_id, held.endpoint, '0', held.fields }
  end
  do return batch_record.write(batch_id, placed, refused, terms, ARGV[5] == '1') end
until true
