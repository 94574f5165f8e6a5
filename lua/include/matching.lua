-- @include "include/keys"
-- @include "include/reply"
-- Which label sets have what a request requires: name=value,value;name=value, each label with one of its values.

-- Label set → true; empty when no node can have them.
local function matching_sets(required)
  local wanted, matches = {}, {}
  for name, values in string.gmatch(required, '([^=;]+)=([^;]+)') do
    wanted[name] = {}
    for value in string.gmatch(values, '[^,]+') do wanted[name][value] = true end
  end
  for id, text in pairs(as_table(redis.call('HGETALL', key('label_sets')))) do
    local has, all = {}, true
    for name, value in string.gmatch(text, '([^=;]+)=([^;]+)') do has[name] = value end
    for name, values in pairs(wanted) do all = all and has[name] ~= nil and values[has[name]] == true end
    if all then matches[id] = true end
  end
  return matches
end
