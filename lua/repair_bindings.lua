-- repair_bindings.lua: brings the lists of awaited sandboxes in line with their records.
-- Guarantee: changes no record. A sandbox that its node lists is awaited no more, one that it does not list is, from
--            when it was recorded; one without a record is not awaited by the domain.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2..]: sandbox_ids  at most 200
-- Reply: {'repaired', sandbox_id without a record, …} | {'uninitialised'} | {'unknown', what, found}
-- Cost: O(ids log bindings)
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/settings"
-- @include "include/records"

local _, refused = read_settings()
if refused then return refused end
local reply = { 'repaired' }
for index = 2, #ARGV do
  local sandbox_id = ARGV[index]
  local record = record_of(sandbox_id)
  if not record then
    redis.call('ZREM', key('assigned'), sandbox_id)
    reply[#reply + 1] = sandbox_id
  elseif is_listed(record.node_id, sandbox_id) then
    redis.call('ZREM', key('assigned'), sandbox_id)
    redis.call('ZREM', node_key(record.node_id, 'assigned'), sandbox_id)
    if record.deleted > 0 then
      redis.call('ZADD', node_key(record.node_id, 'deleted'), integer(record.deleted), sandbox_id)
    else
      redis.call('ZREM', node_key(record.node_id, 'deleted'), sandbox_id)
    end
  else
    redis.call('ZADD', key('assigned'), integer(record.recorded_at_ms), sandbox_id)
    redis.call('ZADD', node_key(record.node_id, 'assigned'), integer(record.sequence), sandbox_id)
  end
end
return reply
