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
-- ARGV[15]: require  labels that the node must have, name=value,value;name=value; '' when none
-- ARGV[16]: resources  further ones beside CPUs and memory, name=amount;name=amount; '' when none
-- ARGV[17]: spread  what must be spread: max|skew,number,node|label,key; '' when nothing
-- ARGV[18]: excluded_count  how many of the following are excluded nodes
-- ARGV[19..]: excluded  node ids, then locality keys
-- Reply: {'placed', node_id, endpoint, strategy, degraded}; of a creation then sequence, cpu_count, memory_bytes,
--        created_at_ms, expires_at_ms, and by name what else was written and the caller cannot know
--        {'replayed', node_id, endpoint, strategy, degraded, {reservation fields}}
--        {'conflict', {reservation fields} | {}}: a batch has the key, or another request
--        {'taken', {reservation fields} | {}}: the sandbox id is another's
--        {'refused', nodes, {limit, current, pending, requested, maximum} | {}, reason, count, …}
--        {'unadmitted', resource that the settings do not list} | {'overloaded', what} | {'again'} | {'refresh'}
--        {'uninitialised'} | {'unknown', what, found}
--        {'not_rebuilt', ms, of what}
-- Cost: O(classes + log nodes); bounded slices of expiry and silence backlog, each answered with 'again', as is a search
--       that limits refuse too many nodes
-- @include "include/keys"
-- @include "include/integer"
-- @include "include/time"
-- @include "include/stored_settings"
-- @include "include/batch_beside"
-- @inline "inline/straight"
-- @include "include/reply"
-- @include "include/cursors"
-- @include "include/settings"
-- @include "include/request"
-- @include "include/choose"

local settings, refused = read_settings(stored)
if refused then return refused end
if settings.refresh_after then return { 'refresh' } end
local cursors = read_cursors()
local now = read_clock(ARGV[1], cursors.now, cursors.offset)
-- @inline "inline/gate_shut"
local reservation_id = ARGV[2]
local request = read_request(9)

-- Decide. An id that was decided before is told again, with what became of it since.
-- A key belongs to a placement or to a batch.
if request.creation and redis.call('EXISTS', reservation_key(reservation_id), batch_beside(reservation_id)) > 0 then
  if redis.call('EXISTS', reservation_key(reservation_id)) == 0 then return { 'conflict', {} } end
  -- @inline "include/deadlines"
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
  -- @inline "include/naming"
  local holder = holder_of_name(ARGV[8], now)
  if holder then return { 'taken', holder } end
end
-- @inline "inline/backlog"
-- @inline "inline/decide"
local node_id = context.node_id
if not node_id then
  if not swept and not context.too_large then return { 'again', 'expiry' } end
  -- @inline "include/refusal"
  -- @inline "include/rates"
  redis.call('HINCRBY', key('stats'), 'refusals', 1)
  local reply = refusal(request, context)
  count_refused(commonest_reason(reply), now)
  return reply
end

-- @include "include/meet"
local row, lost = meet(node_id, context)
if lost then return lost end

-- Write.
-- @include "include/turns"
turns.move(cursors, request, context, node_id)
turns.save(cursors, now)
if not request.creation then
  local endpoint = redis.call('HGET', node_key(node_id), 'endpoint') or ''
  return { 'placed', node_id, endpoint, settings.strategy, context.degraded and '1' or '0' }
end
-- @include "include/reserve"
local held = hold(request, context, node_id, row)
held.id, held.sandbox_id = reservation_id, ARGV[8]
write_reservation({
  fingerprint = ARGV[3], lifecycle = ARGV[4], request_id = ARGV[6], caller = ARGV[7], strategy = settings.strategy,
  now = now, ttl_ms = ARGV[5] ~= '' and tonumber(ARGV[5]) or settings.placement_reservation_ttl_ms,
}, held)
tallies.flush()
return { 'placed', node_id, held.endpoint, settings.strategy, held.degraded, told_of(held) }
