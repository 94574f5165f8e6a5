-- Which pool a node belongs to.
-- Draining first, told by discovery or by the node's last report, silent or not; then the age of that report,
-- then what else the node says of itself.
local function pool_of(discovery, status, over_limit, stale)
  if discovery == 'lingering' or status == 'lingering' then return 'l' end
  if stale or status == 'unhealthy' then return over_limit and 'x' or 'u' end
  if over_limit then return 'o' end
  return status == 'ready' and 'r' or 'c'
end

-- Of a node known before the ledger was lost and not heard of since: what it held then is no ground to admit.
local function waiting_pool(pool)
  return (pool == 'r' or pool == 'c' or pool == 'u') and 'w' or pool
end
