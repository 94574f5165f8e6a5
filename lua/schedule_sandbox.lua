-- schedule_sandbox.lua: chooses a node and, for a creation, reserves on it – one atomic decision.
-- Guarantee: no two placements see the same free capacity; the same reservation id is decided once.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2]: reservation_id  fixed by the caller before its first attempt
-- ARGV[3]: fingerprint  of the request; the same id with another fingerprint is a conflict
-- ARGV[4]: lifecycle  explicit | heartbeat
-- ARGV[5]: ttl_ms  of the reservation, '' for the ledger's default
-- ARGV[6]: request_id  for the logs, may be ''
-- ARGV[7]: caller  name of the API key
-- ARGV[8]: kind  cold | template | ordinary (the request starts here, see include/request)
-- ARGV[9]: cpu_count  0: not stated
-- ARGV[10]: memory_mb  MiB, 0: not stated
-- ARGV[11]: template_id  '' when none
-- ARGV[12]: group_key  '' when the request belongs to no group
-- ARGV[13]: entropy  random integer from the caller
-- ARGV[14]: excluded_count  how many of the following are excluded nodes
-- ARGV[15..]: excluded  node ids, then locality keys
-- Reply: {'placed', node_id, endpoint, strategy, degraded, {reservation fields} | {}}
--        {'replayed', node_id, endpoint, strategy, degraded, {reservation fields}}
--        {'conflict', {reservation fields}} | {'refused', nodes, reason, count, …}
--        {'overloaded', what} | {'again'} | {'refresh'} | {'uninitialised'}
-- Errors: none
-- Cost: O(log nodes); bounded slices of index, expiry and silence backlog, each answered with 'again'
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/clock"
-- @include "include/settings"
-- @include "include/silence"
-- @include "include/reservations"
-- @include "include/request"
-- @include "include/choose"

local settings = read_settings()
if not settings then return { 'uninitialised' } end
if settings.refresh_after then return { 'refresh' } end
local cursors = as_table_of(key('cursors'), 'now', 'journal_base', 'round_robin', 'ordinary', 'ties', 'ordinary_ties',
  'groups', 'fallback')
local now = read_clock(ARGV[1], cursors.now)
local reservation_id = ARGV[2]

local function endpoint_of(node_id)
  return redis.call('HGET', node_key(node_id), 'endpoint') or ''
end

-- What the first attempt with this id did, told again.
local function replay(reservation)
  local state = reservation.state
  local over = (state == 'pending' and tonumber(reservation.expires_at_ms) <= now)
    or state == 'cancelled' or state == 'expired'
  local fields = redis.call('HGETALL', reservation_key(reservation_id))
  if over or reservation.fingerprint ~= ARGV[3] then return { 'conflict', fields } end
  return { 'replayed', reservation.node_id, endpoint_of(reservation.node_id), reservation.strategy,
    reservation.degraded or '0', fields }
end

local request = read_request(8, settings)
if request.creation then
  local earlier = redis.call('EXISTS', reservation_key(reservation_id))
  if earlier == 1 then return replay(read_reservation(reservation_id)) end
end

local caught_up = retire_silent(now, settings.report_ttl_ms, settings.binding_ttl_ms)
local swept = expire_due(now, EXPIRY_SLICE)
save_rows()
if not caught_up then return { 'again', 'silence' } end

local context = { settings = settings, cursors = cursors, now = now }
if not choose(request, context) then return { 'again', 'index' } end
local node_id = context.node_id
if not node_id then
  if not swept then return { 'overloaded', 'expiry' } end
  redis.call('HINCRBY', key('stats'), 'refusals', 1)
  return refusal(request, context)
end

local moved = { 'now', integer(now) }
if context.moves then
  local counts = context.moves == 'ties' or context.moves == 'ordinary_ties'
  moved[3] = context.moves
  moved[4] = counts and integer((tonumber(cursors[context.moves] or '') or 0) + 1) or node_id
end
redis.call('HSET', key('cursors'), unpack(moved))
local degraded = context.pool.degraded and '1' or '0'
local decision = { 'placed', node_id, endpoint_of(node_id), settings.strategy, degraded, {} }
if not request.creation then
  if context.ranks then note_shape(context.shape, now) end
  return decision
end

local sequence = redis.call('INCR', key('sequence'))
local ttl_ms = ARGV[5] ~= '' and tonumber(ARGV[5]) or settings.placement_reservation_ttl_ms
local cpu, memory = request.cpu, request.memory_mb * MIB
local fields = {
  'node_id', node_id, 'state', 'pending', 'lifecycle', ARGV[4], 'cpu_count', integer(cpu),
  'memory_bytes', integer(memory), 'held_cpu', integer(cpu), 'held_memory', integer(memory), 'held_count', '1',
  'created_at_ms', integer(now), 'expires_at_ms', integer(now + ttl_ms), 'ttl_ms', integer(ttl_ms),
  'sequence', integer(sequence), 'fingerprint', ARGV[3], 'strategy', settings.strategy, 'caller', ARGV[7],
  'request_id', ARGV[6],
}
if degraded == '1' then fields[#fields + 1], fields[#fields + 2] = 'degraded', '1' end
if request.template_id ~= '' then
  fields[#fields + 1], fields[#fields + 2] = 'template_id', request.template_id
end
for _, value in ipairs(commit_group(context.group, request, node_id, sequence, context)) do
  fields[#fields + 1] = value
end
redis.call('HSET', reservation_key(reservation_id), unpack(fields))
redis.call('ZADD', key('reservations'), sequence, reservation_id)
redis.call('ZADD', key('expiry'), integer(now + ttl_ms), reservation_id)
redis.call('ZADD', node_key(node_id, 'reservations'), sequence, reservation_id)
redis.call('ZADD', node_key(node_id, 'unnamed'), sequence, reservation_id)

local old_member = row_member(row_of(node_id), node_id)
hold({ node_id = node_id }, cpu, memory, 1)
local journal_length = save_rows()
if context.ranks then advance_shape(context.shape, settings, now, node_id, old_member, journal_length) end
decision[6] = fields
return decision
