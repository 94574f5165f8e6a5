-- @include "include/keys"
-- Of two memories of one reservation, which stands.
local function has_ended(reservation)
  return reservation.state ~= 'pending' and reservation.state ~= 'confirmed'
end

local function supersedes(mine, known)
  local own, theirs = tonumber(mine.revision or '0'), tonumber(known.revision or '0')
  if own ~= theirs then return own > theirs end
  if has_ended(mine) ~= has_ended(known) then return has_ended(mine) end
  return mine.sandbox_told == '1' and known.sandbox_told ~= '1'
end

-- What becomes of a reservation that is remembered as `mine` and stands in the ledger as `known`; nil: it stays.
-- A name that a caller told outlives a newer memory without one, unless that has ended.
local function reconciled(mine, known)
  if not known then return mine end
  local newer, older = known, mine
  if supersedes(mine, known) then newer, older = mine, known end
  if older.sandbox_told == '1' and newer.sandbox_told ~= '1' and not has_ended(newer) then
    local named = {}
    for name, value in pairs(newer) do named[name] = value end
    named.sandbox_id, named.sandbox_told = older.sandbox_id, '1'
    named.state, named.confirmed_at_ms = 'confirmed', older.confirmed_at_ms
    return named
  end
  return newer == mine and mine or nil
end
