-- schedule_sandboxes.lua: places ordinary creations that were asked for at one moment – one call for all of them.
-- Guarantee: each is decided as schedule_sandbox would decide it after the one before it, and for itself: what one
--            is answered changes nothing for another; what cannot be decided so is not decided, and is to be asked
--            for alone.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2..]: creations  twelve values each, as schedule_sandbox has them: reservation_id, fingerprint, lifecycle,
--            ttl_ms, request_id, caller, kind (cold | template), cpu_count, memory_mb, template_id, group_key; and
--            '1' where locality keys are asked for
-- Reply: {'several', {reply}, …}: for each creation, in order, a reply of schedule_sandbox that says placed or
--            refused, or {'alone'}
--        {'alone'}: none of them can be decided here | {'uninitialised'} | {'unknown', what, found}
-- Cost: O(creations * (classes + log nodes)), at most 32 creations
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/cursors"
-- @include "include/settings"
-- @include "include/batch_beside"
local stored = read_stored()
repeat
  -- @inline "inline/ordinary"
  -- @inline "inline/several"
  -- @inline "include/new_reservations"
  local WIDTH, ALONE = 12, { 'alone' }
  local replies, held, decided = {}, {}, {}

  -- The CPUs and MiB of a creation.
  local function size_of(kind, cpus, mib, template_id)
    if kind == 'template' and template_id ~= '' then
      local known = call('HMGET', prefix .. 'template:' .. template_id, 'cpu_count', 'memory_mb')
      cpus, mib = known[1] or cpus, known[2] or mib
    end
    return tonumber(cpus), tonumber(mib)
  end

  for first = 2, #ARGV, WIDTH do
    local id, origin, number = ARGV[first], ARGV[first + 10], #replies + 1
    local cpus, mib = size_of(unpack(ARGV, first + 6, first + 9))
    replies[number] = ALONE
    -- One that was decided before, or stands twice in this call, is told what became of it when it asks alone.
    if not several.astray and cpus > 0 and mib > 0 and not decided[id]
      and not (origin ~= '' and tonumber(stored[14] or '')) and not (ARGV[first + 11] == '1' and stored[9] == '1')
      and call('EXISTS', reservation_key(id), batch_beside(id)) == 0 then
      local node_id, refusal = several.place(cpus, mib * 1048576, mib)
      decided[id] = node_id
      if node_id then
        held[#held + 1] = {
          request = { template_id = ARGV[first + 9], origin = origin }, node_id = node_id, cpu = cpus,
          memory = mib * 1048576, degraded = '0', first = first, number = number,
        }
      else
        replies[number] = refusal or ALONE
      end
    end
  end

  -- Write. What is stopped half-way has reserved nothing, or is found by the id of whoever asks again.
  if held[1] then
    several.settle()
    local sequence = several.draw()
    for index, each in ipairs(held) do
      local first, ttl_ms = each.first, ARGV[each.first + 3]
      each.sequence = integer(sequence + index)
      local fields = new_reservations.note({
        id = ARGV[first], fingerprint = ARGV[first + 1], lifecycle = ARGV[first + 2], request_id = ARGV[first + 4],
        caller = ARGV[first + 5], sandbox_id = '', strategy = strategy, now = now,
        ttl_ms = tonumber(ttl_ms ~= '' and ttl_ms or reservation_ttl_ms),
      }, each)
      replies[each.number] = { 'placed', each.node_id, several.endpoint(each.node_id), strategy, '0', fields }
    end
    new_reservations.write()
  end
  do return { 'several', unpack(replies) } end
until true
local _, refused = read_settings(stored)
return refused or { 'alone' }
