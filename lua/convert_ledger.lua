-- convert_ledger.lua: brings the ledger of version 0.1 (format 1), or one of format 2 or 3, to the format of this version.
-- Guarantee: version 0.1 is fenced before anything of its ledger is touched: each of its scripts then fails before
--            its first write; replicas of formats 2 and 3 refuse in words from the one step on that converts theirs.
--            Whatever stops a slice, the next call goes on from there; the ledger opens, with the settings it had, in the
--            last step.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2..]: defaults  field, value, …: settings that an earlier version did not have
-- Reply: {'converting', stage that was worked on, how much was done}  call again
--        {'converted'} | {'nothing'}  no older ledger is there | {'unknown', 'format', found}
-- Cost: one slice of at most 500 small steps
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/settings"
local FENCE = 'moved: see shared_settings and docs/upgrade.md'

-- What version 0.1 kept where its fences stand now, and where it belongs. Its scripts read at least one of these
-- before they write anything, and a text is no hash and no list.
local MOVED = { settings = 'conversion', cursors = 'rotations', artifact_backlog = 'artifact_leftovers' }

-- Whether version 0.1 still stands behind this key.
local function is_unfenced(name)
  return redis.call('EXISTS', key(name)) == 0 or type(redis.pcall('GET', key(name))) ~= 'string'
end

-- The settings first: they stop all placements. A key that is gone but not fenced is one that a slice was stopped at.
local function fence()
  for _, name in ipairs({ 'settings', 'cursors', 'artifact_backlog' }) do
    if is_unfenced(name) then
      if name == 'settings' then
        redis.call('HSET', key('conversion'), 'stage', 'fence', unpack(redis.call('HGETALL', key(name))))
      elseif redis.call('EXISTS', key(name)) == 1 then
        redis.call('RENAME', key(name), key(MOVED[name]))
      end
      redis.call('SET', key(name), FENCE)
    end
  end
end

local SLICE = 200

-- Version 0.1 kept no list of open reservations without a sandbox, and none of a node's finished ones. Idempotent: a slice
-- may be done again.
local function list_unnamed(after)
  local found = redis.call('ZRANGEBYSCORE', key('reservations'), '(' .. after, '+inf', 'WITHSCORES', 'LIMIT', 0, SLICE)
  for index = 1, #found, 2 do
    local known = as_table_of(reservation_key(found[index]), 'state', 'node_id', 'sandbox_id', 'lifecycle', 'sequence',
      'cpu_count', 'memory_bytes', 'held_cpu', 'held_memory', 'held_count')
    if (known.state == 'pending' or known.state == 'confirmed') and not known.sandbox_id then
      redis.call('HSET', node_key(known.node_id, 'unnamed'), found[index], string.format('%s,%s,%s,%s,%s',
        known.lifecycle == 'heartbeat' and 'h' or 'e', known.sequence, known.held_cpu or known.cpu_count,
        known.held_memory or known.memory_bytes, known.held_count or '1'))
    elseif known.node_id and known.state ~= 'pending' and known.state ~= 'confirmed' then
      redis.call('ZADD', node_key(known.node_id, 'finished'), known.sequence, found[index])
    end
  end
  return #found / 2, #found == 2 * SLICE and found[#found] or nil
end

-- A binding becomes the record of its sandbox; one that no roster lists is awaited by sequence.
local function write_records(cursor)
  local scanned = redis.call('HSCAN', key('bindings'), cursor, 'COUNT', SLICE)
  for index = 1, #scanned[2], 2 do
    local sandbox_id, recorded_at_ms, node_id = scanned[2][index], string.match(scanned[2][index + 1], '^(%d+) (.*)$')
    if node_id then
      local listed = redis.call('SISMEMBER', node_key(node_id, 'sandboxes'), sandbox_id) == 1
      local text = recorded_at_ms .. ',0,' .. (listed and 'l' or 't') .. ',0,0,0,0 ' .. node_id
      redis.call('HSET', key('bindings'), sandbox_id, text)
      if not listed then
        redis.call('ZADD', node_key(node_id, 'assigned'), 0, sandbox_id)
      elseif redis.call('HGET', node_key(node_id), 'endpoint') then
        -- Nobody told its size, and it was there before anybody waits for it.
        redis.call('HINCRBY', node_key(node_id), 'baseline_ids', 1)
      end
    end
  end
  return #scanned[2] / 2, scanned[1] ~= '0' and scanned[1] or nil
end

-- Up to format 2 there was an index for each size of request, and a journal that these followed.
local function drop_shapes()
  local shapes = redis.call('HKEYS', prefix .. 'shapes')
  for _, name in ipairs(shapes) do redis.call('UNLINK', prefix .. 'shape:' .. name) end
  redis.call('DEL', prefix .. 'shapes', prefix .. 'journal')
  redis.call('HDEL', key('rotations'), 'journal_base')
  return #shapes
end

-- Indexes are derived, replicas of version 0.1 are fenced, and all rows are made anew from what they stand for, and with
-- them their index.
local function finish()
  local shapes = drop_shapes()
  redis.call('DEL', key('replicas'), key('tallies'))
  local known, values = as_table(redis.call('HGETALL', key('conversion'))), { 'format', FORMAT, 'refresh_after', '' }
  for index = 2, #ARGV, 2 do
    if not known[ARGV[index]] then
      values[#values + 1], values[#values + 2] = ARGV[index], ARGV[index + 1]
    end
  end
  redis.call('HSET', key('conversion'), unpack(values))
  redis.call('HDEL', key('conversion'), 'stage')
  redis.call('RENAME', key('conversion'), KEYS[1])
  return shapes
end

if redis.call('EXISTS', KEYS[1]) == 1 then
  local found = redis.call('HGET', KEYS[1], 'format')
  if found == '2' or found == '3' then
    local shapes = drop_shapes()
    redis.call('DEL', key('tallies'))
    -- Settings that this format knows and the one before did not.
    for index = 2, #ARGV, 2 do
      if redis.call('HEXISTS', KEYS[1], ARGV[index]) == 0 then redis.call('HSET', KEYS[1], ARGV[index], ARGV[index + 1]) end
    end
    redis.call('HSET', KEYS[1], 'format', FORMAT, 'refresh_after', '')
    return { 'converting', 'index', integer(shapes) }
  end
  if found == FORMAT then return { 'converted' } end
  return { 'unknown', 'format', found or '' }
end
if redis.call('EXISTS', key('conversion')) == 0 then
  local epoch = redis.pcall('HGET', key('settings'), 'epoch')
  if type(epoch) ~= 'string' then return { 'nothing' } end
  fence()
  return { 'converting', 'fence', '3' }
end
-- A slice that was stopped half-way may have left a fence out.
fence()
local at = as_table_of(key('conversion'), 'stage', 'cursor')
local done, cursor
if at.stage == 'fence' then
  done, cursor = list_unnamed(at.cursor or '0')
elseif at.stage == 'unnamed' then
  done, cursor = write_records(at.cursor or '0')
else
  return { 'converting', 'finish', integer(finish()) }
end
if cursor then
  redis.call('HSET', key('conversion'), 'cursor', cursor)
else
  redis.call('HSET', key('conversion'), 'stage', at.stage == 'fence' and 'unnamed' or 'records')
  redis.call('HDEL', key('conversion'), 'cursor')
end
return { 'converting', at.stage == 'fence' and 'unnamed' or 'records', integer(done) }
