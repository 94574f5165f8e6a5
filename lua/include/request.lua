-- @include "include/keys"
-- A placement request as the scripts that place and explain receive it, in ARGV[first] to ARGV[last], or all the
-- rest:
--   kind, cpu_count, memory_mb, template_id, group_key, entropy, require, resources, spread, excluded count, excluded…,
--   locality keys…
-- `matches`: the label sets with what it requires; nil: it requires nothing. `resources`: amounts by name
-- (include/resources), `needed`: those above 0; `unadmitted`: one that the settings do not list. `spread`: its key, what it
-- is spread over ('node' or a label), and the most of it (`bound` max), or of it more than in the place with fewest (skew).
local function read_request(first, last)
  local excluded_count, required, asked = tonumber(ARGV[first + 9]), ARGV[first + 6], ARGV[first + 7]
  local spread = ARGV[first + 8]
  local request = {
    kind = ARGV[first], creation = ARGV[first] ~= 'ordinary',
    cpu = tonumber(ARGV[first + 1]), memory_mb = tonumber(ARGV[first + 2]),
    template_id = ARGV[first + 3], group_key = ARGV[first + 4], origin = ARGV[first + 4],
    entropy = tonumber(ARGV[first + 5]),
    excluded = {}, locality = {},
  }
  for index = first + 10, first + 9 + excluded_count do request.excluded[ARGV[index]] = true end
  for index = first + 10 + excluded_count, last or #ARGV do request.locality[#request.locality + 1] = ARGV[index] end
  if request.kind == 'template' and request.template_id ~= '' then
    local known = redis.call('HMGET', key('template:' .. request.template_id), 'cpu_count', 'memory_mb')
    request.cpu = tonumber(known[1] or '') or request.cpu
    request.memory_mb = tonumber(known[2] or '') or request.memory_mb
  elseif request.kind == 'cold' then
    if request.cpu == 0 then request.cpu = tonumber(redis.call('HGET', KEYS[1], 'cold_default_cpu_count')) end
    if request.memory_mb == 0 then request.memory_mb = tonumber(redis.call('HGET', KEYS[1], 'cold_default_memory_mb')) end
  end
  if required ~= '' then
    -- @inline "include/matching"
    request.required, request.matches = required, matching_sets(required)
    -- A group holds what requires the same.
    if request.group_key ~= '' then
      -- The embedded interpreter has no sha1hex; there the whole text does.
      local brief = (#required <= 255 or not redis.sha1hex) and required or redis.sha1hex(required)
      request.group_key = request.group_key .. ' ' .. brief
    end
  end
  if asked ~= '' then
    -- @inline "include/resources"
    request.resources = resources.amounts(asked)
    local configured = resources.configured(redis.call('HGET', KEYS[1], 'resources') or '')
    for name, amount in pairs(request.resources) do
      if not configured[name] then request.unadmitted = name end
      if amount > 0 then
        request.needed = request.needed or {}
        request.needed[name] = amount
      end
    end
  end
  if spread ~= '' then
    local bound, most, over, spread_key = string.match(spread, '^(%a+),(%d+),([^,]+),(.*)$')
    request.spread = { bound = bound, most = tonumber(most), over = over, key = spread_key }
    if request.group_key ~= '' then request.group_key = request.group_key .. ' ' .. spread end
  end
  return request
end
