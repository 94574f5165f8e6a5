-- read_summary.lua: the whole ledger on one page, from sums and sizes that are kept.
-- Guarantee: of one moment; walks neither nodes nor reservations, but for the few that are told of below.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- Reply: {'summary', {name, value, …}, {replica_id, …}, {status, nodes, …}, {sum, value, … of include/tallies},
--         {class, with its labels written out, most CPUs free on one, most bytes free on one, …} (-1: not known), {slot,
--         text, … of include/rates}}
--        {'again'} | {'uncounted'}: the sums are to be counted first | {'uninitialised'} | {'unknown', what, found}
-- Cost: O(classes + replicas), nodes that are silent and drain, 1,000 of those over a limit, and once each reservation that
--       is the oldest no longer
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/clock"
-- @include "include/settings"
-- @include "include/deadlines"
-- @include "include/classes"
local LOOKED_AT, OLDEST_LOOKED_AT = 1000, 512

local settings, refused = read_settings()
if refused then return refused end
local now = open_clock(ARGV[1])
-- @inline "inline/notice_silence"
local swept = overdue.work_off(now, overdue.SLICE) < overdue.SLICE
save_rows()
if not swept then return { 'again', 'expiry' } end
local sums = redis.call('HGETALL', key('tallies'))
local kept = as_table(sums)
if kept.counted ~= tallies.WHOLE then return { 'uncounted' } end

local function size(set) return redis.call('ZCARD', key(set)) end

-- How many of the nodes that drain are silent: of the smaller of the two sets.
local function silent_and_draining()
  local few, many = 'lingering', 'silent'
  if size(many) < size(few) then few, many = many, few end
  local count, first = 0, 0
  while true do
    local node_ids = redis.call('ZRANGE', key(few), first, first + LOOKED_AT - 1)
    if #node_ids == 0 then return count end
    for _, score in ipairs(redis.call('ZMSCORE', key(many), unpack(node_ids))) do
      if score then count = count + 1 end
    end
    first = first + LOOKED_AT
  end
end

-- Nodes that no set of a status tells: how many of them say that they are ready. Of very many it is taken for granted.
local function ready_among(set)
  local ready, node_ids = 0, redis.call('ZRANGE', key(set), 0, LOOKED_AT - 1)
  for _, node_id in ipairs(node_ids) do
    if redis.call('HGET', node_key(node_id), 'status') == 'ready' then ready = ready + 1 end
  end
  return ready + size(set) - #node_ids
end

local function count_nodes()
  local silent = silent_and_draining()
  local ready = size('ready') + size('avoided_ready') + ready_among('over_limit') + ready_among('waiting')
  local unhealthy, lingering = size('unhealthy') + silent, size('lingering') - silent
  local connecting = size('nodes') - ready - unhealthy - lingering
  return { 'ready', integer(ready), 'connecting', integer(connecting), 'unhealthy', integer(unhealthy),
    'lingering', integer(lingering) }
end

-- The most that is free on one node of each class that takes creations, from the heads of its rows.
local function free_by_class()
  local found, texts = {}, nil
  for _, class in ipairs(all_classes()) do
    if string.find('rcRC', class.pool, 1, true) then
      local tops, cpus, bytes = cpu_rows.classes[class.name], -1, -1
      for number = 3, #tops do
        if class.band >= 0 and tops[number] < cpu_rows.EMPTY then bytes = math.max(bytes, class.band - tops[number]) end
      end
      for number = 3, class.cpu >= 0 and #tops or 0 do
        if tops[number] < cpu_rows.EMPTY then
          for at, score in ipairs(cpu_rows.chunk_heads(class.name, number - 3)) do
            local row = (number - 3) * cpu_rows.CHUNK + at - 1
            if score < cpu_rows.EMPTY then
              cpus = math.max(0, class.cpu - row * class.step)
              break
            end
          end
          break
        end
      end
      local name = class.name
      if class.labels ~= '-' then
        texts = texts or as_table(redis.call('HGETALL', key('label_sets')))
        name = string.format('%s,%s,%d,%d', class.pool, texts[class.labels] or '-', class.cpu, class.band)
      end
      for _, value in ipairs({ name, integer(cpus), integer(class.band >= 0 and math.max(0, bytes) or -1) }) do
        found[#found + 1] = value
      end
    end
  end
  return found
end

-- When the oldest pending reservation was made, '' for none. Where the search may begin is kept: nothing before is pending.
-- Nil: there is more to look at than one call may.
local function oldest_pending()
  if size('expiry') == tonumber(kept.state_confirmed or '0') then return '' end
  local from = kept.oldest_sequence or '-inf'
  local found = redis.call('ZRANGEBYSCORE', key('reservations'), from, '+inf', 'WITHSCORES', 'LIMIT', 0, OLDEST_LOOKED_AT)
  for index = 1, #found, 2 do
    local state, created_at_ms = unpack(redis.call('HMGET', reservation_key(found[index]), 'state', 'created_at_ms'))
    if state == 'pending' then
      redis.call('HSET', key('tallies'), 'oldest_sequence', found[index + 1])
      return created_at_ms
    end
  end
  if #found < 2 * OLDEST_LOOKED_AT then return '' end
  redis.call('HSET', key('tallies'), 'oldest_sequence', found[#found])
  return nil
end

local oldest = oldest_pending()
if not oldest then return { 'again', 'oldest' } end
local agreed = as_table_of(KEYS[1], 'revision', 'epoch', 'rebuilding_until_ms')
local turned = as_table_of(key('rotations'), 'placed', 'straight_cpu', 'straight_mib')
return {
  'summary',
  {
    'now_ms', integer(now), 'clock_skew_ms', integer(clock_offset), 'strategy', settings.strategy,
    'revision', agreed.revision or '', 'epoch', agreed.epoch or '',
    'rebuilding', now < (tonumber(agreed.rebuilding_until_ms or '') or 0) and '1' or '0',
    'open', integer(size('expiry')), 'oldest_pending_ms', oldest, 'placed', turned.placed or '',
    'straight_cpu', turned.straight_cpu or '0', 'straight_mib', turned.straight_mib or '0',
  },
  redis.call('ZRANGEBYSCORE', key('replicas'), '(' .. integer(now), '+inf', 'LIMIT', 0, LOOKED_AT),
  count_nodes(), sums, free_by_class(), redis.call('HGETALL', key('rates')),
}
