-- @include "include/keys"
-- @include "include/reply"
-- What is kept of a batch as a whole, so that it can be told again:
--   batch:<id>   hash: fingerprint, strategy, and `refused`, the creations that no node took: index;reason,count;… per line,
--                and `figures`, what keeps each off in figures: limit,current,pending,requested,maximum, line by line
local batch_record = {}
do
  local RETENTION_MS, UNKEYED_MS = 3600000, 120000

  -- The id of the reservation that a single placement with the batch's key has.
  function batch_record.single_of(batch_id)
    return 'k' .. string.sub(batch_id, 2)
  end

  -- The reply of a batch that was decided now. Of one that its caller cannot repeat only refusals are kept, for an
  -- attempt whose reply was lost.
  function batch_record.write(batch_id, placed, refused, terms, keyed)
    local reply = { 'decided', terms.strategy, '0', placed, refused }
    if not keyed and not refused[1] then return reply end
    local lines, figures = {}, {}
    for index, entry in ipairs(refused) do
      lines[index], figures[index] = entry[1] .. ';' .. table.concat(entry, ';', 3), table.concat(entry[2], ',')
    end
    local name = key('batch:' .. batch_id)
    -- The fingerprint, by which it is known, only once the key ends by itself.
    redis.call('HSET', name, 'strategy', terms.strategy)
    redis.call('PEXPIRE', name, integer(keyed and terms.ttl_ms + math.max(RETENTION_MS, terms.ttl_ms) or UNKEYED_MS))
    redis.call('HSET', name, 'fingerprint', terms.fingerprint, 'refused', table.concat(lines, '\n'), 'figures',
      table.concat(figures, '\n'))
    return reply
  end
end
