-- Lists of numbers as the index keeps them: eight bytes each. The embedded ledger cannot pack; there they are written out.

local SIXTEEN = '<dddddddddddddddd'

local function form_of(count)
  if count == 16 then return SIXTEEN end
  return count < 16 and string.sub(SIXTEEN, 1, count + 1) or '<' .. string.rep('d', count)
end

local function pack_numbers(list)
  if struct then return struct.pack(form_of(#list), unpack(list)) end
  local texts = {}
  for index, number in ipairs(list) do texts[index] = string.format('%.17g', number) end
  return table.concat(texts, ',')
end

local function unpack_numbers(text)
  local list
  if struct then
    list = { struct.unpack(form_of(#text / 8), text) }
    list[#list] = nil
    return list
  end
  list = {}
  for number in string.gmatch(text, '[^,]+') do list[#list + 1] = tonumber(number) end
  return list
end
