-- recount_node.lua: holds everything the ledger keeps about one node against what it stands for.
-- Guarantee: one moment's truth, whatever else is going on; writes nothing.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2]: node_id  listed or not: of a node that is not, hardly anything may be left
-- Reply: {'recounted', subject, rule, detail, …} | {'uninitialised'} | {'unknown', what, found}
-- Cost: O(open reservations of the node + its roster, up to 2,000 ids)
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/clock"
-- @include "include/settings"
-- @include "include/observe"
-- @include "include/reservations"
-- @include "include/findings"
-- @include "include/recount_claims"
-- @include "include/recount_account"
-- @include "include/cpu_configs"

local OBSERVED = { 'cpu_capacity', 'memory_capacity', 'cpu_load', 'memory_load', 'starting', 'running', 'paused',
  'cpu_most', 'memory_most', 'count_most', 'open' }

local settings, refused = read_settings()
if refused then return refused end
local now, node_id = open_clock(ARGV[1]), ARGV[2]
local subject = 'node ' .. node_id
local known = as_table_of(node_key(node_id), 'discovery', 'status', 'over_limit', 'last_seen_ms', 'waiting', 'labels',
  'unlabelled')
local listed = redis.call('ZSCORE', key('nodes'), node_id)
local row = row_of(node_id)

local function score_in(set) return redis.call('ZSCORE', key(set), node_id) end

local function recount_listing()
  local discovered = known.discovery == 'active' or known.discovery == 'lingering'
  if discovered and not listed then finding(subject, 'listing', 'is discovered but not among the nodes') end
  if listed and not discovered then finding(subject, 'listing', 'is among the nodes but not discovered') end
  if listed and not row then finding(subject, 'row', 'is listed but has no row') end
  if row and not listed then finding(subject, 'row', 'has a row but is not listed') end
  local member_of = {}
  for _, set in ipairs(node_pools.sets(row and pool_letter(row))) do member_of[set] = true end
  for _, set in ipairs(node_pools.all_sets()) do
    local belongs = member_of[set] == true
    if belongs and not score_in(set) then finding(subject, 'sets', 'is missing from ' .. set) end
    if not belongs and score_in(set) then finding(subject, 'sets', 'does not belong in ' .. set) end
    for _, labels in ipairs(redis.call('HKEYS', key('label_sets'))) do
      local part = set .. ':' .. labels
      local there = belongs and row.labels == labels
      if there and not score_in(part) then finding(subject, 'sets', 'is missing from ' .. part) end
      if not there and score_in(part) then finding(subject, 'sets', 'does not belong in ' .. part) end
    end
  end
end

-- The labels in force are those that its sources say, and the row carries them.
local function recount_labels()
  -- @inline "include/labels"
  if not row then return end
  local told, id = labelling.merged(node_id), row.labels
  local text = id and redis.call('HGET', key('label_sets'), id) or ''
  local without = known.unlabelled == '1' and not id
  if (text ~= told and not without) or (known.labels or '') ~= text then
    finding(subject, 'labels',
      'has ' .. shown(text) .. ', its sources say ' .. shown(told) .. ', noted: ' .. shown(known.labels))
  end
end

local function recount_sightings()
  local seen, silent = score_in('seen'), score_in('silent')
  local last = listed and known.last_seen_ms
  if (seen and silent) or ((seen or silent) and not last) or (last and not seen and not silent) then
    finding(subject, 'sightings', 'last seen ' .. shown(last) .. ', but in seen: ' .. shown(seen)
      .. ', in silent: ' .. shown(silent))
  elseif last and tonumber(seen or silent) ~= tonumber(last) then
    finding(subject, 'sightings', 'last seen ' .. last .. ', listed with ' .. shown(seen or silent))
  end
end

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
  if not in_class and not (among_free and not place.shadowed) then
    finding(subject, 'index', 'does not stand in row ' .. integer(place.row) .. ' of class ' .. place.class)
  end
  if place.shadowed and not among_free then finding(subject, 'index', 'does not stand among the free ones') end
  if place.unknown and missing(place.unknown, 0) then
    finding(subject, 'index', 'is missing from those that rank as unknown')
  end
end

-- A node that is avoided is watched, and says until when.
local function recount_avoidance()
  local watched = redis.call('ZSCORE', key('avoided_until'), node_id)
  local level = redis.call('HGET', node_key(node_id), 'avoid_level')
  if (watched ~= false) ~= (level ~= false) or (row and row.avoided and not watched) then
    finding(subject, 'avoidance', 'is avoided at level ' .. shown(level) .. ', until ' .. shown(watched))
  end
end

-- A node's CPU template takes part in its cluster's exactly as long as the node is observed.
local function recount_cpu_config()
  local kept = as_table_of(node_key(node_id, 'cpu_config'), 'listed', 'cluster_id', 'digest')
  if not kept.listed then return end
  local member = kept.digest .. ' ' .. node_id
  local takes_part = redis.call('ZSCORE', cpu_configs_key(kept.cluster_id), member) ~= false
  local expected = kept.listed == '1' and listed and known.last_seen_ms ~= nil
  if takes_part ~= expected or (kept.listed == '1') ~= expected then
    finding(subject, 'cpu_config', 'takes part in its cluster\'s CPU template although it should not, or the reverse')
  end
end

local cpu, memory, count, nameless, further = recount_claims(node_id, subject)
local account = account_of(node_id)
if account then
  cpu, memory, count = cpu - account.discount_cpu, memory - account.discount_memory, count - account.discount_count
end
recount_unnamed(node_id, subject, nameless)
recount_account(node_id, subject)
recount_listing()
recount_labels()
recount_sightings()
recount_row()
recount_capacity()
recount_place()
recount_avoidance()
recount_cpu_config()
if row and (row.pending_cpu ~= cpu or row.pending_memory ~= memory or row.pending_count ~= count) then
  finding(subject, 'pending', string.format('its row counts %d CPUs, %d bytes, %d sandboxes as pending; '
    .. 'its open reservations hold %d, %d, %d', row.pending_cpu, row.pending_memory, row.pending_count, cpu, memory, count))
end
-- Further resources, one by one: what is pending of each, and what the order by free ones says.
local function recount_resources()
  local names = {}
  for name in pairs(row.resources or {}) do names[name] = true end
  for name in pairs(further) do names[name] = true end
  for name in pairs(names) do
    local one = row.resources and row.resources[name]
    if (one and one.pending or 0) ~= (further[name] or 0) then
      finding(subject, 'pending', string.format('its row counts %d of %s as pending; its open reservations hold %d',
        one and one.pending or 0, name, further[name] or 0))
    end
    local noted, free = redis.call('ZSCORE', key('resource:' .. name), node_id), resources.free_on(row, name)
    if (noted and tonumber(noted) or nil) ~= free then
      finding(subject, 'resource', 'has ' .. shown(free) .. ' of ' .. name .. ' free, noted: ' .. shown(noted))
    end
  end
end
if row then recount_resources() end
if not listed then
  local function left(part, until_done)
    if redis.call('EXISTS', node_key(node_id, part)) == 1 and not (until_done and score_in(until_done)) then
      finding(subject, 'orphan', 'is not listed, and nothing will ever clear its ' .. part)
    end
  end
  left('acknowledged', 'removed')
  left('doubts', 'removed')
  left('deleted', 'forgotten')
  left('sandboxes', 'forgotten')
  left('artifacts')
  left('warm')
end
return findings
