-- schedule_sandbox.lua: chooses a node and, for a creation, reserves on it – one atomic decision.
-- Guarantee: no two placements see the same free capacity; the same reservation id is decided once; a sandbox id
--            that its caller gives belongs to one open reservation or sandbox.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2]: reservation_id  fixed by the caller before its first attempt
-- ARGV[3]: fingerprint  of the request; the same id with another fingerprint is a conflict
-- ARGV[4]: lifecycle  explicit | heartbeat
-- ARGV[5]: ttl_ms  of the reservation, '' for the ledger's default
-- ARGV[6]: request_id  for the logs, may be ''
-- ARGV[7]: caller  name of the API key
-- ARGV[8]: sandbox_id  that the caller gave the sandbox to be, '' when the node names it
-- ARGV[9]: kind  cold | template | ordinary (the request starts here, see include/request)
-- ARGV[10]: cpu_count  0: not stated
-- ARGV[11]: memory_mb  MiB, 0: not stated
-- ARGV[12]: template_id  '' when none
-- ARGV[13]: group_key  '' when the request belongs to no group
-- ARGV[14]: entropy  random integer from the caller
-- ARGV[15]: excluded_count  how many of the following are excluded nodes
-- ARGV[16..]: excluded  node ids, then locality keys
-- Reply: {'placed', node_id, endpoint, strategy, degraded, {reservation fields, without what the caller brought} | {}}
--        {'replayed', node_id, endpoint, strategy, degraded, {reservation fields}}
--        {'conflict', {reservation fields}} | {'taken', {reservation fields} | {}}: the sandbox id is another's
--        {'refused', nodes, {limit, current, pending, requested, maximum} | {}, reason, count, …}
--        {'overloaded', what} | {'again'} | {'refresh'} | {'uninitialised'} | {'unknown', what, found}
--        {'not_rebuilt', ms, of what}
-- Errors: none
-- Cost: O(classes + log nodes); bounded slices of expiry and silence backlog, each answered with 'again', as is a search
--       that limits refuse too many nodes
-- @include "include/straight"
-- @include "include/request"
-- @include "include/choose"

local settings, refused = read_settings(stored)
if refused then return refused end
if settings.refresh_after then return { 'refresh' } end
local cursors = read_cursors()
local now = read_clock(ARGV[1], cursors.now, cursors.offset)
if settings.gated_until_ms then
  -- @include "include/rebuilding"
  local gated = not_rebuilt(settings.gated_until_ms, now)
  if gated then return gated end
end
local reservation_id = ARGV[2]
local request = read_request(9)

-- Decide. An id that was decided before is told again, with what became of it since.
if request.creation and redis.call('EXISTS', reservation_key(reservation_id)) == 1 then
  -- @include "include/reservations"
  local earlier = read_reservation(reservation_id)
  end_when_due(earlier, now)
  save_rows()
  local fields = redis.call('HGETALL', reservation_key(reservation_id))
  if earlier.state == 'cancelled' or earlier.state == 'expired' or earlier.fingerprint ~= ARGV[3] then
    return { 'conflict', fields }
  end
  local endpoint = redis.call('HGET', node_key(earlier.node_id), 'endpoint') or ''
  return { 'replayed', earlier.node_id, endpoint, earlier.strategy, earlier.degraded or '0', fields }
end
if request.creation and ARGV[8] ~= '' then
  -- @include "include/naming"
  local holder = holder_of_name(ARGV[8], now)
  if holder then return { 'taken', holder } end
end
-- @include "include/decide"
local node_id = context.node_id
if not node_id then
  if not swept and not context.too_large then return { 'overloaded', 'expiry' } end
  -- @include "include/refusal"
  -- @include "include/rates"
  redis.call('HINCRBY', key('stats'), 'refusals', 1)
  local reply = refusal(request, context)
  count_refused(commonest_reason(reply), now)
  return reply
end

-- Nothing is written for a node whose row is missing or was made anew, or that the index shows otherwise than it is: the
-- index is put right first.
-- @include "include/met"
local row = row_of(node_id)
local place = row and cpu_rows.place_of(row, node_id)
rows[node_id].place = place
if not row or row_order.rebuilt or (context.found and not stands_at(place, context.found)) then
  -- @include "include/distrust"
  return distrust(node_id, row, context)
end

-- Write.
local moves, node = context.moves, node_key(node_id)
local turned = { 'now', now_ms, 'offset', integer(clock_offset) }
if is_counter(moves) then
  turned[5], turned[6] = moves, integer((tonumber(cursors[moves] or '') or 0) + 1)
elseif moves then
  turned[5], turned[6] = moves, node_id
end
if request.creation then
  -- @include "include/rates"
  turned[#turned + 1], turned[#turned + 2] = 'placed', count_placed(cursors.placed, now)
end
redis.call('HSET', key('rotations'), unpack(turned))
local degraded = context.degraded and '1' or '0'
local endpoint = redis.call('HGET', node, 'endpoint') or ''
local decision = { 'placed', node_id, endpoint, settings.strategy, degraded, {} }
if not request.creation then
  return decision
end

local sequence = integer(redis.call('INCR', key('sequence')))
local ttl_ms = ARGV[5] ~= '' and tonumber(ARGV[5]) or settings.placement_reservation_ttl_ms
local cpu, memory = integer(request.cpu), integer(context.demand.memory)
local deadline = integer(now + ttl_ms)
local lifecycle_letter = ARGV[4] == 'heartbeat' and 'h' or 'e'
local fields = {
  'node_id', node_id, 'state', 'pending', 'lifecycle', ARGV[4], 'cpu_count', cpu, 'memory_bytes', memory,
  'created_at_ms', now_ms, 'expires_at_ms', deadline, 'sequence', sequence, 'revision', '1',
}
if degraded == '1' then fields[#fields + 1], fields[#fields + 2] = 'degraded', '1' end
if ARGV[8] ~= '' then
  for _, value in ipairs({ 'sandbox_id', ARGV[8], 'sandbox_told', 'named' }) do fields[#fields + 1] = value end
end
if request.template_id ~= '' then
  fields[#fields + 1], fields[#fields + 2] = 'template_id', request.template_id
end
if request.group_key ~= '' then
  fields[#fields + 1], fields[#fields + 2] = 'origin', request.group_key
end
if context.group then
  -- @include "include/commit_group"
  local remembered = commit_group_outcome(context.group, request, node_id, sequence, context)
  for _, value in ipairs(remembered) do fields[#fields + 1] = value end
end
-- The hold first and the reservation last: what is stopped in between promised nothing, and is counted anew with
-- the node's next report.
row.pending_cpu = row.pending_cpu + request.cpu
row.pending_memory = row.pending_memory + context.demand.memory
row.pending_count = row.pending_count + 1
if context.avoiding and redis.call('ZSCORE', key('avoided_until'), node_id) then
  -- @include "include/avoidance"
  note_trial(node_id, now)
end
save_rows()
redis.call('ZADD', key('reservations'), sequence, reservation_id)
redis.call('ZADD', key('expiry'), deadline, reservation_id)
redis.call('ZADD', node .. ':reservations', sequence, reservation_id)
if ARGV[8] ~= '' then
  redis.call('SET', key('sandbox:' .. ARGV[8]), reservation_id)
  redis.call('HSET', node .. ':claims', ARGV[8], reservation_id)
else
  redis.call('HSET', node .. ':unnamed', reservation_id,
    lifecycle_letter .. ',' .. sequence .. ',' .. cpu .. ',' .. memory .. ',1')
end
redis.call('HSET', reservation_key(reservation_id), 'fingerprint', ARGV[3], 'strategy', settings.strategy,
  'caller', ARGV[7], 'request_id', ARGV[6], unpack(fields))
decision[6] = fields
return decision
