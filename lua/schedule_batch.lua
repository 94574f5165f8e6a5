-- schedule_batch.lua: chooses nodes for many creations and reserves on them – one atomic decision.
-- Guarantee: each is placed as if it had been asked for after the one before it; with 'all' nothing is reserved unless
--            every one fits; the same batch is decided once; no two placements see the same free capacity.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2]: batch_id  fixed by the caller before its first attempt
-- ARGV[3]: fingerprint  of the batch; the same id with another fingerprint is a conflict
-- ARGV[4]: mode  all: none unless every one fits | some: as many as fit
-- ARGV[5]: keyed  '1': the caller may repeat the batch for as long as its reservations can be read
-- ARGV[6]: lifecycle  explicit | heartbeat
-- ARGV[7]: ttl_ms  of the reservations, '' for the ledger's default
-- ARGV[8]: request_id  for the logs, may be ''
-- ARGV[9]: caller  name of the API key
-- ARGV[10]: forms_count  how many different requests follow
-- ARGV[11..]: forms  each its length and its values (include/request); then the number of creations, and of each the
--             reservation id, the sandbox id that the caller gives ('' when the node does), and which form it has
-- Reply: {'decided', strategy, replayed (1|0), {{index, node_id, endpoint, degraded, …}, …},
--        {{index, {limit, current, pending, requested, maximum} | {}, reason, count, …}, …}}: placed and refused
--        ones, by index from 0; a placed one ends as the reply of schedule_sandbox does, or, where an earlier
--        attempt reserved it, with {reservation fields}
--        {'refused', nodes, {limit, current, pending, requested, maximum} | {}, reason, count, …}: not all fit
--        {'conflict', state of the single reservation with this key, '' when another batch has it}
--        {'taken', index, {reservation fields} | {}}: the sandbox id is another's
--        {'unadmitted', resource that the settings do not list} | {'overloaded', what} | {'again'} | {'refresh'}
--        {'uninitialised'} | {'unknown', what, found}
--        {'not_rebuilt', ms, of what}
-- Cost: O(creations * (classes + log nodes)), at most 256 creations
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/cursors"
-- @include "include/settings"
-- @inline "inline/ordinary_batch"
-- @include "include/request"
-- @include "include/choose_ranked"
-- @include "include/choose"
-- @include "include/meet"
-- @include "include/turns"
-- @include "include/warm_keys"
-- @include "include/reserve"
-- @include "include/batches"

local settings, refused = read_settings(stored)
if refused then return refused end
if settings.refresh_after then return { 'refresh' } end
local cursors = read_cursors()
local now = read_clock(ARGV[1], cursors.now, cursors.offset)
-- @inline "inline/gate_shut"
local creations = batches.creations(10)
do
  local known, conflict = batches.read(ARGV[2], ARGV[3], creations, now)
  if conflict then return { 'conflict', '' } end
  if known then return known end
  -- The key may belong to a single placement, or have been taken back before the batch arrived.
  local single = ARGV[5] == '1' and redis.call('HGET', reservation_key(batch_record.single_of(ARGV[2])), 'state')
  if single then return { 'conflict', single } end
end

-- Whose a sandbox id is already, or nil.
local function holder_of(sandbox_id)
  -- @inline "include/naming"
  return holder_of_name(sandbox_id, now)
end

-- What a caller may ask for, and names that it gives, are checked before anything is decided.
for index, creation in ipairs(creations) do
  local unadmitted = not creation.earlier and creation.request.unadmitted
  if unadmitted then return { 'unadmitted', unadmitted } end
  local holder = creation.sandbox_id ~= '' and not creation.earlier and holder_of(creation.sandbox_id)
  if holder then return { 'taken', index - 1, holder } end
end

-- @inline "inline/backlog"
local groups_before = {}
local place
do
  -- Why the present creation cannot be decided by this call, or nil and what was decided.
  local function decide(request)
    -- @inline "inline/decide"
    if not context.node_id and not swept and not context.too_large then return { 'again', 'expiry' } end
    return nil, context
  end

  -- The hold of one creation; or the reply that ends this call.
  function place(creation, request)
    local ended, context = decide(request)
    if ended then return nil, ended end
    local node_id = context.node_id
    if not node_id then
      -- @inline "include/refusal"
      local why = refusal(request, context)
      count_refused(commonest_reason(why), now)
      return nil, nil, why
    end
    local row, lost = meet(node_id, context)
    if lost then return nil, lost end
    turns.move(cursors, request, context, node_id)
    context.groups_before = groups_before
    return hold(request, context, node_id, row)
  end
end

warm_keys.before = {}
local held, refusals, ended = {}, {}, nil
for index, creation in ipairs(creations) do
  if not creation.earlier then
    local request = creation.request
    request.entropy = (creation.entropy + index * 2654435761) % 4294967296
    local capacity, stopped, why = place(creation, request)
    if capacity then
      capacity.creation, held[#held + 1] = creation, capacity
    elseif stopped or ARGV[4] == 'all' then
      ended = stopped or why
      break
    else
      refusals[#refusals + 1] = { index - 1, unpack(why, 3) }
    end
  end
end
-- What is to be called again goes on with what it has reserved.
if ended and (ARGV[4] == 'all' or ended[1] ~= 'again') then
  batches.undo(held, groups_before)
  warm_keys.undo()
  if ended[1] == 'refused' then redis.call('HINCRBY', key('stats'), 'refusals', 1) end
  return ended
end

-- Write. What is stopped half-way is decided anew, and keeps what it has reserved.
turns.save(cursors, now)
do
  local terms = {
    lifecycle = ARGV[6], request_id = ARGV[8], caller = ARGV[9], fingerprint = ARGV[3], now = now,
    ttl_ms = ARGV[7] ~= '' and tonumber(ARGV[7]) or settings.placement_reservation_ttl_ms, strategy = settings.strategy,
  }
  for _, capacity in ipairs(held) do
    capacity.id, capacity.sandbox_id = capacity.creation.id, capacity.creation.sandbox_id
    write_reservation(terms, capacity)
    capacity.creation.held = capacity
  end
  tallies.flush()
  if ended then return ended end
  if refusals[1] then redis.call('HINCRBY', key('stats'), 'refusals', #refusals) end
  return batch_record.write(ARGV[2], batches.placed_ones(creations), refusals, terms, ARGV[5] == '1')
end
