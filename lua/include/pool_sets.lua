-- The sets that nodes of each pool stand in; capitals: avoided for a while, where that makes a difference.
local POOL_SETS = {
  r = { 'candidates', 'ready' }, c = { 'candidates' }, u = { 'unhealthy', 'last_resort' }, x = { 'unhealthy' },
  o = { 'over_limit' }, l = { 'lingering' }, w = { 'waiting' },
  R = { 'avoided', 'avoided_ready' }, C = { 'avoided' }, U = { 'unhealthy', 'avoided_last_resort' },
}

local function sets_of(pool)
  return pool and (POOL_SETS[pool] or POOL_SETS[string.lower(pool)]) or {}
end
