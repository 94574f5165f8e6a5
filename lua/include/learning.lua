-- @include "include/keys"
-- Template sizes: declared by people, or learned from what a create event says of a sandbox
-- that was placed from the template.
local TEMPLATES_MAX = 100000
local LEARNED_MIB = 1024 * 1024

-- `revision`: of the configuration that declares it; nil when none does. Listed first: every hash is counted.
local function write_template(template_id, cpu_count, memory_mb, source, revision)
  redis.call('ZADD', key('templates'), 0, template_id)
  redis.call('HSET', key('template:' .. template_id), 'cpu_count', cpu_count, 'memory_mb', memory_mb, 'source', source,
    'configured', revision and integer(revision) or '')
end

local function learn_template(reservation, cpu, memory)
  local template_id = reservation.template_id
  if not template_id or cpu <= 0 or memory <= 0 then return end
  if redis.call('HGET', KEYS[1], 'templates_learn') ~= '1' then return end
  local source = redis.call('HGET', key('template:' .. template_id), 'source')
  if source == 'declared' or (not source and redis.call('ZCARD', key('templates')) >= TEMPLATES_MAX) then return end
  write_template(template_id, integer(cpu), integer(math.ceil(memory / LEARNED_MIB)), 'learned')
end
