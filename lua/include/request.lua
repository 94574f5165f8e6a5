-- @include "include/keys"
-- A placement request as the scripts that place and explain receive it, in ARGV[first] to ARGV[last], or all the
-- rest:
--   kind, cpu_count, memory_mb, template_id, group_key, entropy, excluded count, excluded…, locality keys…
local function read_request(first, last)
  local excluded_count = tonumber(ARGV[first + 6])
  local request = {
    kind = ARGV[first], creation = ARGV[first] ~= 'ordinary',
    cpu = tonumber(ARGV[first + 1]), memory_mb = tonumber(ARGV[first + 2]),
    template_id = ARGV[first + 3], group_key = ARGV[first + 4], entropy = tonumber(ARGV[first + 5]),
    excluded = {}, locality = {},
  }
  for index = first + 7, first + 6 + excluded_count do request.excluded[ARGV[index]] = true end
  for index = first + 7 + excluded_count, last or #ARGV do request.locality[#request.locality + 1] = ARGV[index] end
  if request.kind == 'template' and request.template_id ~= '' then
    local known = redis.call('HMGET', key('template:' .. request.template_id), 'cpu_count', 'memory_mb')
    request.cpu = tonumber(known[1] or '') or request.cpu
    request.memory_mb = tonumber(known[2] or '') or request.memory_mb
  elseif request.kind == 'cold' then
    if request.cpu == 0 then request.cpu = tonumber(redis.call('HGET', KEYS[1], 'cold_default_cpu_count')) end
    if request.memory_mb == 0 then request.memory_mb = tonumber(redis.call('HGET', KEYS[1], 'cold_default_memory_mb')) end
  end
  return request
end
