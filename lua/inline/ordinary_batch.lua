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
  local batch_id, asked, ids, ordinary = ARGV[2], {}, {}, true
  do
    -- The forms, of which nil is none of the ordinary ones.
    local argv, forms, at = ARGV, {}, 11
    for number = 1, tonumber(argv[10]) do
      local kind, cpus, mib, template_id, origin = unpack(argv, at + 1, at + 5)
      local length = tonumber(argv[at])
      local asks_more = argv[at + 7] ~= '' or argv[at + 8] ~= '' or argv[at + 9] ~= '' or argv[at + 10] ~= '0'
      local near = length > 10 and stored[9] == '1'
      if kind ~= 'ordinary' and not asks_more and not near and not (origin ~= '' and tonumber(stored[14] or '')) then
        forms[integer(number)] = several.form(kind, cpus, mib, template_id, origin)
      end
      at = at + length + 1
    end
    -- One that was decided before, also in part, is told again below; a key of a single placement is refused there.
    local reservations = prefix .. 'reservation:'
    local known = { prefix .. 'batch:' .. batch_id, reservations .. batch_record.single_of(batch_id) }
    for number = 1, tonumber(argv[at]) do
      local id, form = argv[at + 1], forms[argv[at + 3]]
      if not form or argv[at + 2] ~= '' then
        ordinary = false
        break
      end
      ids[number], asked[number], known[number + 2] = id, form, reservations .. id
      at = at + 3
    end
    ordinary = ordinary and call('EXISTS', unpack(known)) == 0
  end
  if not ordinary then break end
  local terms, refused, undecided, ended = several.terms(ARGV[3], unpack(ARGV, 6, 9)), {}, false, nil
  for index, form in ipairs(asked) do
    local node_id, why = several.place(form, #asked - index)
    if node_id then
      several.hold(terms, form, ids[index], node_id, index)
    elseif not why then
      undecided = true
      break
    elseif ARGV[4] == 'all' then
      several.held, ended = {}, why
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
    placed[number] = { held.number - 1, held.node_id, held.endpoint, '0', told_of(held) }
  end
  do return batch_record.write(batch_id, placed, refused, terms, ARGV[5] == '1') end
until true
