-- The pools, one row each, and what follows from the letter. A capital letter: the node refuses what it is given, and is
-- avoided for a while (include/avoidance), where that makes a difference.
-- RANKED: those that some candidates are ranked from; UNKNOWN: the one whose nodes always rank as unknown; FRESH: those that
-- are heard of and take creations, or would but for a limit.
local node_pools = { RANKED = 'rcu', UNKNOWN = 'c', FRESH = 'rco', OVER_LIMIT = 'o' }
do
  local facts, variants

  -- of        what its nodes are
  -- sets      they stand in; `avoided`: those while they are avoided
  -- silent    the pool they are in once nobody has heard of them for too long; only fresh ones have one
  -- against   why nobody of it is chosen where it is not among the candidates
  function node_pools.facts(letter)
    facts = facts or {
      r = { of = 'ready', sets = { 'candidates', 'ready' }, avoided = { 'avoided', 'avoided_ready' }, silent = 'u' },
      c = { of = 'connecting', sets = { 'candidates' }, avoided = { 'avoided' }, silent = 'u', against = 'not_ready' },
      u = {
        of = 'unhealthy', sets = { 'unhealthy', 'last_resort' }, avoided = { 'unhealthy', 'avoided_last_resort' },
        against = 'unhealthy',
      },
      x = { of = 'unhealthy and over a limit', sets = { 'unhealthy' }, against = 'unhealthy' },
      o = { of = 'over a limit', sets = { 'over_limit' }, silent = 'x', against = 'over_limit' },
      l = { of = 'lingering', sets = { 'lingering' }, against = 'lingering' },
      w = { of = 'waiting, not heard of since a loss of the ledger', sets = { 'waiting' }, against = 'not_ready' },
    }
    return facts[string.lower(letter)]
  end

  -- Every set that nodes of some pool stand in.
  function node_pools.all_sets()
    node_pools.facts(node_pools.UNKNOWN)
    local listed, seen = {}, {}
    for _, pool in pairs(facts) do
      for _, sets in ipairs({ pool.sets, pool.avoided }) do
        for _, set in ipairs(sets) do
          if not seen[set] then listed[#listed + 1], seen[set] = set, true end
        end
      end
    end
    return listed
  end

  -- pools     whose nodes are the candidates
  -- set       that rotation walks, and the `second` one, when nobody of it will do
  function node_pools.candidates(variant)
    variants = variants or {
      any = { pools = 'rc', set = 'candidates', second = 'avoided' },
      ready = { pools = 'r', set = 'ready', second = 'avoided_ready' },
      degraded = { pools = 'u', set = 'last_resort', second = 'avoided_last_resort' },
    }
    return variants[variant]
  end

  function node_pools.holds(variant, letter)
    return (string.find(node_pools.candidates(variant).pools, letter, 1, true)) ~= nil
  end

  function node_pools.is_ranked(letter)
    return (string.find(node_pools.RANKED, letter, 1, true)) ~= nil
  end

  -- The sets that the nodes of a pool stand in; of nil: none. With a label set a node stands in each of them a second time,
  -- in '<set>:<label set>', which rotation walks for a request that requires labels.
  function node_pools.sets(letter, labels)
    if not letter then return {} end
    local pool, all = node_pools.facts(letter), {}
    local sets = letter < 'a' and pool.avoided or pool.sets
    if not labels then return sets end
    for _, set in ipairs(sets) do all[#all + 1], all[#all + 2] = set, set .. ':' .. labels end
    return all
  end

  -- Every set that nodes of some pool stand in, and each once more for every label set.
  function node_pools.all_parts()
    local parts, labels = {}, redis.call('HKEYS', key('label_sets'))
    for _, set in ipairs(node_pools.all_sets()) do
      parts[#parts + 1] = set
      for _, id in ipairs(labels) do parts[#parts + 1] = set .. ':' .. id end
    end
    return parts
  end

  -- Which pool a node belongs to.
  -- Draining first, told by discovery or by the node's last report, silent or not; then the age of that report,
  -- then what else the node says of itself.
  function node_pools.of(discovery, status, over_limit, stale)
    if discovery == 'lingering' or status == 'lingering' then return 'l' end
    if stale or status == 'unhealthy' then return over_limit and 'x' or 'u' end
    if over_limit then return 'o' end
    return status == 'ready' and 'r' or 'c'
  end

  -- Of a node known before the ledger was lost and not heard of since: what it held then is no ground to admit.
  function node_pools.while_waiting(letter)
    return node_pools.is_ranked(letter) and 'w' or letter
  end
end
