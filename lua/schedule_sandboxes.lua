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
  local WIDTH, ALONE = 12, { 'alone' }
  local replies, asked = {}, {}

  -- Whether the creation was decided before, its key is a batch's, or it stands twice in this call: what became of it is
  -- told when it asks alone.
  local reservations = {}
  for first = 2, #ARGV, WIDTH do
    reservations[#reservations + 1] = reservation_key(ARGV[first])
    reservations[#reservations + 1] = batch_beside(ARGV[first])
  end
  local some_known = call('EXISTS', unpack(reservations)) > 0
  local function is_known(id)
    return asked[id] or (some_known and call('EXISTS', reservation_key(id), batch_beside(id)) > 0)
  end

  for first = 2, #ARGV, WIDTH do
    local id, origin, number = ARGV[first], ARGV[first + 10], #replies + 1
    local form = several.form(unpack(ARGV, first + 6, first + 10))
    replies[number] = ALONE
    if form and not several.astray and not is_known(id)
      and not (origin ~= '' and tonumber(stored[14] or '')) and not (ARGV[first + 11] == '1' and stored[9] == '1') then
      local node_id, refusal = several.place(form, (#ARGV - first - WIDTH + 1) / WIDTH)
      asked[id] = node_id
      if node_id then
        several.hold(several.terms(unpack(ARGV, first + 1, first + 5)), form, id, node_id, number)
      else
        replies[number] = refusal or ALONE
      end
    end
  end

  several.write()
  for _, held in ipairs(several.held) do
    replies[held.number] = { 'placed', held.node_id, held.endpoint, strategy, '0', told_of(held) }
  end
  do return { 'several', unpack(replies) } end
until true
local _, refused = read_settings(stored)
return refused or { 'alone' }
