-- @include "include/records"
-- A binding carries no TTL to refresh: it is valid until binding_ttl after the later of its recording and the last report
-- of a node that still lists it.

-- Until when a lookup may trust a binding. `last_seen_ms` nil: the node never reported.
local function valid_until(record, sandbox_id, last_seen_ms, binding_ttl_ms)
  if record.deleted > 0 then return 0 end
  local since = record.recorded_at_ms
  if last_seen_ms and last_seen_ms > since and is_listed(record.node_id, sandbox_id) then since = last_seen_ms end
  return since + binding_ttl_ms
end
