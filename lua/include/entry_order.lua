-- The order of entries in a row: by score, equal ones by their bytes, as Redis has them.
local comes_before
do
  -- Lua's order is that of the server's language; where capitals come first it is one of bytes too.
  local BYTES = 'B' < 'a' and 'b' > 'A' and '_' < 'a' and '-' < '.'

  function comes_before(score, member, other_score, other_member)
    if score ~= other_score then return score < other_score end
    if BYTES then return member < other_member end
    for at = 1, math.min(#member, #other_member) do
      local byte, other = string.byte(member, at), string.byte(other_member, at)
      if byte ~= other then return byte < other end
    end
    return #member < #other_member
  end
end
