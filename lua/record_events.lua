-- record_events.lua: takes a node's sandbox events into account: creates name reservations, deletes end them.
-- Guarantee: each event counts once, however often it is told and in whatever order; a fork is never taken for a
--            placed sandbox.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2]: node_id
-- ARGV[3]: service_instance_id
-- ARGV[4..]: events  event type, sandbox_id, cpu_count, memory_bytes, …
-- Reply: {'counted', how many were new, {changes of reservations}} | {'stale'}: of a process that another has replaced
--        {'unlisted'} | {'again'} | {'uninitialised'} | {'unknown', what, found} | {'not_rebuilt', ms, of what}
-- Cost: O(events + unnamed reservations of the node, at most 1,024 of them)
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/clock"
-- @include "include/settings"
-- @include "include/identity"
-- @include "include/instances"
-- @include "include/suggesting"
-- @include "include/rebuilding"
-- @include "include/learning"
-- @include "include/overdue"
local LEARN_MAX = 16
local REMEMBER_MS = 600000
local REMEMBER_MAX = 10000

local settings, refused = read_settings()
if refused then return refused end
local now = open_clock(ARGV[1])
local gated = not_rebuilt(settings.gated_until_ms, now)
if gated then return gated end
local node_id = ARGV[2]
local explained = node_key(node_id, 'explained')
if not redis.call('ZSCORE', key('nodes'), node_id) then return { 'unlisted' } end
local process = as_table_of(node_key(node_id), 'service_instance_id', 'instances', 'last_seen_ms')
if is_replaced(process, { instance = ARGV[3] }, now, settings.report_ttl_ms) then return { 'stale' } end

-- What is due has ended before this, and is not what an event is about.
if not overdue.finish_on({ node_id }, now) then return { 'again', 'expiry' } end

-- Which of these it is does not matter for what their template takes, if that is one template.
local function learn_from(ids, cpu, memory)
  local template_id
  for index, id in ipairs(ids) do
    local own = redis.call('HGET', reservation_key(id), 'template_id')
    if not own or (template_id and own ~= template_id) or index > LEARN_MAX then return end
    template_id = own
  end
  learn_template({ template_id = template_id }, cpu, memory)
end

local function was_deleted(sandbox_id)
  return redis.call('ZSCORE', explained, 'delete ' .. sandbox_id) ~= false
end

local handlers = {}

function handlers.create(sandbox_id, cpu, memory)
  local reservation = reservation_named(sandbox_id, now)
  local theirs = {}
  if not reservation then theirs = confirming_of(node_id, cpu, memory) end
  if not theirs or theirs[1] then
    -- Its caller will name it, and knows its size.
    redis.call('ZADD', explained, 'XX', integer(now), 'create ' .. sandbox_id)
    return theirs and learn_from(theirs, cpu, memory)
  end
  if not reservation and not doubts_size(node_id, account_of(node_id), integer(cpu), integer(memory)) then
    reservation = take_fitting(node_id, cpu, memory, now)
    if reservation then name_reservation(reservation, sandbox_id, false) end
  end
  local record = record_of(sandbox_id)
  local elsewhere = (reservation and reservation.node_id ~= node_id) or (record and record.node_id ~= node_id)
  if not elsewhere and (not was_deleted(sandbox_id) or is_listed(node_id, sandbox_id)) then
    bind(node_id, sandbox_id, now, { cpu = cpu, memory = memory, reservation = reservation })
    if reservation then tallies.count_reservation_spread(reservation, false) end
  elseif reservation and record and record.spread == reservation.spread then
    -- Wherever its record is, it counts already.
    tallies.count_reservation_spread(reservation, false)
  end
  if reservation and (reservation.state == 'pending' or reservation.state == 'confirmed') and not elsewhere then
    if was_deleted(sandbox_id) then
      finish_reservation(reservation, 'settled', 'deleted', now)
    elseif is_listed(node_id, sandbox_id) then
      finish_reservation(reservation, 'settled', 'listed', now)
    else
      hold_begun(reservation, now)
    end
  end
  if reservation then learn_template(reservation, cpu, memory) end
end

-- A child is nobody's create; a name that an event gave it was wrong.
function handlers.fork(sandbox_id, cpu, memory)
  explain_growth(node_id, cpu, memory, 1)
  local account = account_of(node_id)
  if is_listed(node_id, sandbox_id) then
    -- What it has released by now stays released.
    account.credit = math.max(account.credit - 1, math.min(account.credit, least_credit(node_id, account)))
  else
    account.credit, account.forks_new = account.credit - 1, account.forks_new + 1
  end
  weigh_again(node_id)
  local reservation = reservation_named(sandbox_id, now)
  if reservation and reservation.sandbox_told == '0' then
    unassign(reservation, now)
    read_unnamed_again()
  end
  local record = record_of(sandbox_id)
  if (not record or record.node_id == node_id) and (not was_deleted(sandbox_id) or is_listed(node_id, sandbox_id)) then
    bind(node_id, sandbox_id, now, { cpu = cpu, memory = memory })
  end
end

-- What the installed roster lists stays in it, marked: the load counts it until a report leaves it out.
function handlers.delete(sandbox_id)
  local reservation = reservation_named(sandbox_id, now)
  if reservation and reservation.node_id == node_id
    and (reservation.state == 'pending' or reservation.state == 'confirmed') then
    finish_reservation(reservation, 'settled', 'deleted', now)
  end
  local record = record_of(sandbox_id)
  if not record or record.node_id ~= node_id then return end
  if is_listed(node_id, sandbox_id) then
    local sequence = math.max(1, sequence_now())
    change_record(sandbox_id, record, { deleted = sequence })
    redis.call('ZADD', node_key(node_id, 'deleted'), integer(sequence), sandbox_id)
    remember_ended({ sandbox_id }, now)
  else
    unbind(node_id, { sandbox_id }, now)
  end
end

local function set_paused(sandbox_id, paused)
  local account = account_of(node_id)
  if account then account.pauses = 1 end
  local record = record_of(sandbox_id)
  if record and record.node_id == node_id then change_record(sandbox_id, record, { paused = paused }) end
end

local counted = 0
for index = 4, #ARGV, 4 do
  local event_type, sandbox_id = ARGV[index], ARGV[index + 1]
  -- A sandbox may be paused again and again, so this is no matter of counting once.
  if event_type == 'pause' or event_type == 'resume' then set_paused(sandbox_id, event_type == 'pause') end
  local cpu, memory = tonumber(ARGV[index + 2]), tonumber(ARGV[index + 3])
  -- The fraction: it states a size that nobody else knows (include/bindings).
  local told_at = integer(now) .. (cpu + memory > 0 and '.5' or '')
  if redis.call('ZADD', explained, 'NX', told_at, event_type .. ' ' .. sandbox_id) == 1 then
    counted = counted + 1
    local handle = handlers[event_type]
    if handle then handle(sandbox_id, cpu, memory) end
  end
end
redis.call('ZREMRANGEBYSCORE', explained, '-inf', integer(now - REMEMBER_MS))
redis.call('ZREMRANGEBYRANK', explained, 0, -REMEMBER_MAX - 1)
redis.call('PEXPIRE', explained, REMEMBER_MS)
save_rows()
close_clock(now)
return { 'counted', integer(counted), told_changes() }
