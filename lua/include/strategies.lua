-- The strategies, one row each, and what follows from the name; nothing else asks for a strategy by its name.
--   by             what chooses among the candidates: rank (the index by load), turn (the next id), chance (the caller's
--                  random number), group (where the open group of the request's key is)
--   candidates     who may be chosen (include/pools): any, with the last resort behind it, or only who is ready
--   admits         capacity keeps nodes out, also where `admission` leaves that to the strategy
--   fill_to        of those that rank: to which share of its capacity a node is filled before another is begun; 0: never
--   cursor         the rotation that a creation moves; `other_cursor`: any other request; none: nobody takes turns

-- To which share of its capacity a strategy that ranks fills a node; nil: it does not rank.
local function share_filled(name, per_mille)
  return name == 'least_loaded' and (per_mille or 0) / 1000 or name == 'most_loaded' and 1 or nil
end

-- `per_mille` is the setting `fill_to`. One row is made at a time: a table of all of them would cost every placement.
local function strategy_traits(name, per_mille)
  return name == 'round_robin' and {
    by = 'turn', candidates = 'any', cursor = 'round_robin', other_cursor = 'ordinary',
  } or name == 'random' and {
    by = 'chance', candidates = 'any',
  } or name == 'least_loaded' and {
    by = 'rank', candidates = 'any', admits = true, fill_to = share_filled(name, per_mille), cursor = 'ties',
    other_cursor = 'ordinary_ties',
  } or name == 'most_loaded' and {
    by = 'rank', candidates = 'any', admits = true, fill_to = share_filled(name), cursor = 'ties',
    other_cursor = 'ordinary_ties',
  } or name == 'grouped_round_robin' and {
    by = 'group', candidates = 'ready', cursor = 'fallback', other_cursor = 'fallback',
  } or nil
end

-- The rotation that a strategy moves where it chooses the node on which a group opens; nil: it may not choose that.
local function rotation_of_groups(name)
  return name == 'round_robin' and 'groups' or name == 'least_loaded' and 'ties' or nil
end
