-- record_events.lua: takes a node's sandbox events into account: creates name reservations, deletes end them.
-- Guarantee: each event counts once, however often it is told; a fork is never taken for a placed sandbox.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2]: node_id
-- ARGV[3..]: events  event type, sandbox_id, cpu_count, memory_bytes, …
-- Reply: {'counted', how many were new} | {'unlisted'} | {'uninitialised'} | {'unknown', what, found}
-- Errors: none
-- Cost: O(events + unnamed reservations of the node, at most 2,048 of them)
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/clock"
-- @include "include/settings"
-- @include "include/credit"
-- @include "include/identity"
-- @include "include/learning"
local UNNAMED_MAX = 1024
local REMEMBER_MS = 600000
local REMEMBER_MAX = 10000

local settings, refused = read_settings()
if refused then return refused end
local now = open_clock(ARGV[1])
local node_id = ARGV[2]
local explained = node_key(node_id, 'explained')
if not redis.call('ZSCORE', key('nodes'), node_id) then return { 'unlisted' } end

-- Reservations of this node that no sandbox id belongs to: the open ones and those that counters
-- settled, oldest first.
local function unnamed()
  local found = {}
  for _, part in ipairs({ 'reservations', 'acknowledged' }) do
    for _, id in ipairs(redis.call('ZRANGE', node_key(node_id, part), 0, UNNAMED_MAX - 1)) do
      local reservation = read_reservation(id)
      if not reservation then redis.call('ZREM', node_key(node_id, part), id) end
      if reservation and not reservation.sandbox_id
        and (reservation.state == 'settled' or tonumber(reservation.expires_at_ms) > now) then
        found[#found + 1] = reservation
      end
    end
  end
  table.sort(found, function(a, b) return tonumber(a.sequence) < tonumber(b.sequence) end)
  return found
end

-- The unnamed by stated size, read once for all events of the call: { oldest, … } under 'cpu:bytes'.
local waiting
local function waiting_for(size)
  if not waiting then
    waiting = {}
    for _, reservation in ipairs(unnamed()) do
      local stated = reservation.cpu_count .. ':' .. reservation.memory_bytes
      waiting[stated] = waiting[stated] or {}
      table.insert(waiting[stated], reservation)
    end
  end
  return waiting[size]
end

-- Takes the oldest unnamed reservation that fits; a dimension nobody stated fits any size. Reservations of
-- different stated sizes that all fit leave it open which one this is, so the event names none.
local function take_fitting(cpu, memory)
  cpu, memory = integer(cpu), integer(memory)
  local fit
  for size in pairs({ [cpu .. ':' .. memory] = true, [cpu .. ':0'] = true, ['0:' .. memory] = true, ['0:0'] = true }) do
    local candidates = waiting_for(size)
    if candidates and candidates[1] then
      if fit then return nil end
      fit = candidates
    end
  end
  return fit and table.remove(fit, 1)
end

local handlers = {}

function handlers.create(sandbox_id, cpu, memory)
  local reservation = reservation_named(sandbox_id, now)
  if not reservation then
    reservation = take_fitting(cpu, memory)
    if reservation then
      name_reservation(reservation, sandbox_id, false)
      if reservation.state ~= 'settled' and is_listed(node_id, sandbox_id) then
        finish_reservation(reservation, 'settled', 'listed', now)
      end
    end
  end
  if reservation then learn_template(reservation, cpu, memory) end
end

function handlers.fork(_, cpu, memory)
  explain_growth(node_id, cpu, memory, 1)
end

function handlers.delete(sandbox_id)
  local reservation = reservation_named(sandbox_id, now)
  if reservation and reservation.node_id == node_id
    and (reservation.state == 'pending' or reservation.state == 'confirmed') then
    finish_reservation(reservation, 'settled', 'deleted', now)
  end
  unbind(node_id, { sandbox_id })
end

local counted = 0
for index = 3, #ARGV, 4 do
  local event_type, sandbox_id = ARGV[index], ARGV[index + 1]
  if redis.call('ZADD', explained, 'NX', integer(now), event_type .. ' ' .. sandbox_id) == 1 then
    counted = counted + 1
    local handle = handlers[event_type]
    if handle then handle(sandbox_id, tonumber(ARGV[index + 2]), tonumber(ARGV[index + 3])) end
  end
end
redis.call('ZREMRANGEBYSCORE', explained, '-inf', integer(now - REMEMBER_MS))
redis.call('ZREMRANGEBYRANK', explained, 0, -REMEMBER_MAX - 1)
redis.call('PEXPIRE', explained, REMEMBER_MS)
save_rows()
close_clock(now)
return { 'counted', integer(counted) }
