-- convert_ledger.lua: brings the ledger of version 0.1 (format 1) to the format of this version, slice by slice.
-- Guarantee: version 0.1 is fenced before anything of its ledger is touched: each of its scripts then fails before
--            its first write. Whatever stops a slice, the next call goes on from there; the ledger opens, with the
--            settings it had, in the last step.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2..]: defaults  field, value, …: settings that version 0.1 did not have
-- Reply: {'converting', stage that was worked on, how much was done}  call again
--        {'converted'} | {'nothing'}  no ledger of version 0.1 is there | {'unknown', 'format', found}
-- Errors: none
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

-- Indexes are derived, replicas of version 0.1 are fenced, and all rows are made anew from what they stand for.
local function finish()
  local shapes = redis.call('HKEYS', key('shapes'))
  for _, name in ipairs(shapes) do redis.call('UNLINK', key('shape:' .. name)) end
  redis.call('DEL', key('shapes'), key('replicas'))
  local known, values = as_table(redis.call('HGETALL', key('conversion'))), { 'format', FORMAT, 'refresh_after', '' }
  for index = 2, #ARGV, 2 do
    if not known[ARGV[index]] then
      values[#values + 1], values[#values + 2] = ARGV[index], ARGV[index + 1]
    end
  end
  redis.call('HSET', key('conversion'), unpack(values))
  redis.call('HDEL', key('conversion'), 'stage')
  redis.call('RENAME', key('conversion'), KEYS[1])
  return #shapes
end

if redis.call('EXISTS', KEYS[1]) == 1 then
  local found = redis.call('HGET', KEYS[1], 'format')
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
return { 'converting', 'finish', integer(finish()) }
