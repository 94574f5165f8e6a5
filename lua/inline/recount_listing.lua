-- inline/recount_listing.lua: the sets a node stands in, its labels, and when it was seen, against its row and discovery.
-- Reads: known, listed, node_id, row, score_in, subject
-- Sets: nothing
do
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

  recount_listing()
  recount_labels()
  recount_sightings()
end
