-- @include "include/keys"
-- Which process of a node a call comes from. The last ones and their last sequences are kept, so that a late call
-- of one that was replaced changes nothing.
--   node:<id>, field instances   'sequence instance' a line, the newest first, without the present one
local INSTANCES_KEPT = 8

local function parse_instances(text)
  local found = {}
  for sequence, instance in string.gmatch(text or '', '(%d*) ([^\n]+)') do
    found[#found + 1] = { sequence = sequence, instance = instance }
  end
  return found
end

-- Whether another process has replaced this one. Once that one is not heard of any more it is taken back, but not by
-- a call whose caller has disconnected long ago. `known`: service_instance_id, instances, last_seen_ms. `call`:
-- instance, hung_up.
local function is_replaced(known, call, now, report_ttl_ms)
  if call.instance == known.service_instance_id then return false end
  local heard_of = known.last_seen_ms and now - tonumber(known.last_seen_ms) <= report_ttl_ms
  if not heard_of and not call.hung_up then return false end
  for _, earlier in ipairs(parse_instances(known.instances)) do
    if earlier.instance == call.instance then return true end
  end
  return false
end

-- The field once `instance` reports in place of the one before; '' when none does.
local function replaced_by(known, instance)
  local lines = {}
  if known.service_instance_id and known.service_instance_id ~= instance then
    lines[1] = (known.sequence or '') .. ' ' .. known.service_instance_id
  end
  for _, earlier in ipairs(parse_instances(known.instances)) do
    if earlier.instance ~= instance and #lines < INSTANCES_KEPT - 1 then
      lines[#lines + 1] = earlier.sequence .. ' ' .. earlier.instance
    end
  end
  return table.concat(lines, '\n')
end
