-- inline/recount_rank.lua: what a node is chosen by, its row and its place in the index, against what it reported.
-- Reads: known, listed, node_id, now, row, score_in, settings, subject
-- Sets: nothing
do
  local OBSERVED = { 'cpu_capacity', 'memory_capacity', 'cpu_load', 'memory_load', 'starting', 'running', 'paused',
    'cpu_most', 'memory_most', 'count_most', 'open' }

  -- The pool a node belongs to. One that waits for its first report since a loss admits nothing, whatever it said before.
  local function expected_pool(over_limit, stale)
    local pool = node_pools.of(known.discovery, known.status, over_limit, stale)
    return known.waiting and node_pools.while_waiting(pool) or pool
  end

  -- The pools a node may be in: one that fell silent is moved at the next look, not at once.
  local function acceptable_pools(over_limit)
    local pools, last = {}, tonumber(known.last_seen_ms or '')
    local overdue = last ~= nil and now - last > settings.report_ttl_ms
    if not score_in('silent') then pools[expected_pool(over_limit, false)] = true end
    if overdue or score_in('silent') then pools[expected_pool(over_limit, true)] = true end
    return pools
  end

  -- The row against the figures it was made of, under the settings in force.
  local function recount_row()
    local ahead = settings.refresh_after and node_id > settings.refresh_after
    if not row or not listed or ahead then return end
    local expected = { pending_cpu = 0, pending_memory = 0, pending_count = 0 }
    local over_limit = observe(expected, known.discovery, known.status, read_figures(node_id), false,
      read_observation_settings())
    if (known.over_limit or '') ~= (over_limit or '') then
      finding(subject, 'limit', 'exceeds ' .. shown(over_limit) .. ', noted: ' .. shown(known.over_limit))
    end
    if not row.bounded and not expected.bounded then
      for _, name in ipairs({ 'cpu_most', 'memory_most', 'count_most', 'open' }) do expected[name] = row[name] end
    end
    for _, name in ipairs(OBSERVED) do
      if row[name] ~= expected[name] then
        finding(subject, 'row', name .. ' is ' .. shown(row[name]) .. ', its report says ' .. shown(expected[name]))
      end
    end
    if not acceptable_pools(over_limit)[row.pool] then
      finding(subject, 'row', 'is in pool ' .. shown(row.pool) .. ', which its report, discovery and age contradict')
    end
  end

  -- What a node could hold stands where its row says, so that a size no node could hold is refused as such.
  local function recount_capacity()
    if not row or (settings.refresh_after and node_id > settings.refresh_after) then return end
    local found = redis.call('ZSCORE', key('capacity:' .. integer(row.cpu_capacity)), node_id)
    if not (found and tonumber(found) == row.memory_capacity) then
      finding(subject, 'capacity', 'could hold ' .. shown(row.memory_capacity) .. ' bytes with its '
        .. shown(row.cpu_capacity) .. ' CPUs, kept: ' .. shown(found))
    end
  end

  -- A node of a pool that is ranked stands in the index where its row says. After a conversion it comes there with its row.
  local function recount_place()
    local place = row and cpu_rows.place_of(row, node_id)
    if not place or settings.refresh_after then return end
    local function missing(from, expected)
      local score = redis.call('ZSCORE', from, place.member)
      return not score or tonumber(score) ~= expected
    end
    local free = cpu_rows.free_entry(place)
    local in_class, among_free = not missing(place.key, place.score), not missing(free.key, free.score)
    -- Among the free ones alone: there was no room for its class when it came.
    if not in_class and not among_free then
      finding(subject, 'index', 'does not stand in row ' .. integer(place.row) .. ' of class ' .. place.class)
    end
    if place.shadowed and not among_free then finding(subject, 'index', 'does not stand among the free ones') end
    if place.unknown and missing(place.unknown, 0) then
      finding(subject, 'index', 'is missing from those that rank as unknown')
    end
  end

  recount_row()
  recount_capacity()
  recount_place()
end
