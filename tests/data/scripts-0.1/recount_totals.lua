local prefix = string.match(KEYS[1], '^(.*:)settings$')
local function key(name)
  return prefix .. name
end
local function node_key(node_id, part)
  if string.find(node_id, '[%%:]') then
    node_id = string.gsub(string.gsub(node_id, '%%', '%%25'), ':', '%%3A')
  end
  if part then return prefix .. 'node:' .. node_id .. ':' .. part end
  return prefix .. 'node:' .. node_id
end
local function reservation_key(reservation_id)
  return prefix .. 'reservation:' .. reservation_id
end
local function fail(code, detail)
  return redis.error_reply(code .. ' ' .. detail)
end
local function integer(number)
  return string.format('%d', number)
end
local function as_table(flat)
  local fields = {}
  for index = 1, #flat, 2 do fields[flat[index]] = flat[index + 1] end
  return fields
end
local function as_table_of(hash, ...)
  local names = { ... }
  local found = redis.call('HMGET', hash, ...)
  local fields = {}
  for index, field in ipairs(names) do fields[field] = found[index] or nil end
  return fields
end
local ROW = '^(%a),(%-?%d+),(%-?%d+),(%d+),(%d+),(%d+),(%d+),(%d+),(%d+),(%d+),(%d+)$'
local JOURNAL_CAP = 65536
local rows, row_order, journal_trimmed = {}, {}, 0
local function parse_row(text)
  local pool, cpu_capacity, memory_capacity, cpu_load, memory_load, starting, running, paused,
    pending_cpu, pending_memory, pending_count = string.match(text, ROW)
  return {
    pool = pool,
    cpu_capacity = tonumber(cpu_capacity), memory_capacity = tonumber(memory_capacity),
    cpu_load = tonumber(cpu_load), memory_load = tonumber(memory_load),
    starting = tonumber(starting), running = tonumber(running), paused = tonumber(paused),
    pending_cpu = tonumber(pending_cpu), pending_memory = tonumber(pending_memory),
    pending_count = tonumber(pending_count),
  }
end
local function format_row(row)
  return string.format('%s,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d', row.pool,
    row.cpu_capacity, row.memory_capacity, row.cpu_load, row.memory_load, row.starting,
    row.running, row.paused, row.pending_cpu, row.pending_memory, row.pending_count)
end
local function row_member(row, node_id)
  return string.format('%010d%010d%010d', row.starting + row.pending_count,
    row.running, row.paused) .. node_id
end
local function row_of(node_id)
  local known = rows[node_id]
  if known then return known.row end
  local text = redis.call('HGET', key('loads'), node_id)
  local row = text and parse_row(text) or nil
  rows[node_id] = { row = row, text = text, pool = row and row.pool, member = row and row_member(row, node_id) }
  row_order[#row_order + 1] = node_id
  return row
end
local function move_pool(node_id, from, to)
  local sets = {
    r = { 'candidates', 'ready' }, c = { 'candidates' }, u = { 'unhealthy', 'last_resort' },
    x = { 'unhealthy' }, o = { 'over_limit' }, l = { 'lingering' }, w = { 'waiting' },
  }
  for _, name in ipairs(sets[from] or {}) do redis.call('ZREM', key(name), node_id) end
  for _, name in ipairs(sets[to] or {}) do redis.call('ZADD', key(name), 0, node_id) end
end
local function trim_journal(length)
  local surplus = length - JOURNAL_CAP
  redis.call('LTRIM', key('journal'), surplus, -1)
  redis.call('HINCRBY', key('cursors'), 'journal_base', surplus)
  journal_trimmed = journal_trimmed + surplus
end
local function save_rows()
  local length
  for _, node_id in ipairs(row_order) do
    local known = rows[node_id]
    local row = known.row
    local text = row and format_row(row)
    if text ~= known.text and (text or known.text) then
      if text then
        redis.call('HSET', key('loads'), node_id, text)
      else
        redis.call('HDEL', key('loads'), node_id)
      end
      local pool = row and row.pool
      if pool ~= known.pool then move_pool(node_id, known.pool, pool) end
      length = redis.call('RPUSH', key('journal'), known.member or (string.rep('0', 30) .. node_id))
      known.text, known.pool, known.member = text, pool, row and row_member(row, node_id)
    end
  end
  if length and length > JOURNAL_CAP + 1024 then trim_journal(length) end
  return length
end
local findings = { 'recounted' }
local function finding(subject, rule, detail)
  findings[#findings + 1] = subject
  findings[#findings + 1] = rule
  findings[#findings + 1] = detail
end
local function shown(value)
  if not value or value == '' then return 'nothing' end
  return type(value) == 'number' and integer(value) or tostring(value)
end
local function is_open(state)
  return state == 'pending' or state == 'confirmed'
end
local KEPT_MS = 86400000
local RESENT_MS = 60000
local MANY_TEMPLATES = 64
local MANY_TEMPLATES_PAUSE_MS = 5000
local function cpu_configs_key(cluster_id) return key('cpu_configs:' .. cluster_id) end
local function cpu_config_counts_key(cluster_id) return key('cpu_config_counts:' .. cluster_id) end
local function cpu_config_result_key(cluster_id) return key('cpu_config_result:' .. cluster_id) end
local function touch_cpu_configs(cluster_id)
  if redis.call('EXISTS', cpu_configs_key(cluster_id)) == 0 then
    redis.call('DEL', cpu_config_result_key(cluster_id))
  else
    redis.call('HSET', cpu_config_result_key(cluster_id), 'version', integer(redis.call('INCR', key('sequence'))))
  end
end
local function list_cpu_config(node_id, cluster_id, digest)
  redis.call('ZADD', cpu_configs_key(cluster_id), 0, digest .. ' ' .. node_id)
  redis.call('HINCRBY', cpu_config_counts_key(cluster_id), digest, 1)
end
local function unlist_cpu_config(node_id, cluster_id, digest)
  if redis.call('ZREM', cpu_configs_key(cluster_id), digest .. ' ' .. node_id) == 0 then return end
  if redis.call('HINCRBY', cpu_config_counts_key(cluster_id), digest, -1) <= 0 then
    redis.call('HDEL', cpu_config_counts_key(cluster_id), digest)
  end
end
local function withdraw_cpu_config(node_id)
  local kept = node_key(node_id, 'cpu_config')
  local about = redis.call('HMGET', kept, 'listed', 'cluster_id', 'digest')
  if about[1] ~= '1' then return end
  unlist_cpu_config(node_id, about[2], about[3])
  touch_cpu_configs(about[2])
  redis.call('HSET', kept, 'listed', '0')
  redis.call('PEXPIRE', kept, KEPT_MS)
end
local function cpu_config_holders(cluster_id)
  local holders = {}
  for _, digest in ipairs(redis.call('HKEYS', cpu_config_counts_key(cluster_id))) do
    local first = redis.call('ZRANGEBYLEX', cpu_configs_key(cluster_id),
      '[' .. digest .. ' ', '(' .. digest .. '!', 'LIMIT', 0, 1)[1]
    holders[#holders + 1] = string.sub(first, #digest + 2)
  end
  table.sort(holders)
  return holders
end
local function cpu_config_unsent(kept, result, now)
  if not result.revision or result.failed == '1' or kept.answered_revision == result.revision then return false end
  local count = kept.sent_revision == result.revision and tonumber(kept.sent_count) or 0
  return count < 2 or now - tonumber(result.recomputed_at_ms) <= RESENT_MS
end
local function cpu_config_due(node_id, now)
  local cluster_id = redis.call('HGET', node_key(node_id), 'cluster_id') or ''
  local kept = as_table_of(node_key(node_id, 'cpu_config'),
    'listed', 'cluster_id', 'answered_revision', 'sent_revision', 'sent_count')
  if kept.listed ~= '1' or kept.cluster_id ~= cluster_id then return true end
  if redis.call('HEXISTS', cpu_config_counts_key(cluster_id), 'none') == 1 then return false end
  local result = as_table_of(cpu_config_result_key(cluster_id),
    'version', 'computed_version', 'revision', 'recomputed_at_ms', 'failed')
  return result.version ~= result.computed_version or cpu_config_unsent(kept, result, now)
end
local function deliver_cpu_config(node_id, cluster_id, carried, now)
  local result = as_table_of(cpu_config_result_key(cluster_id), 'revision', 'recomputed_at_ms', 'failed')
  if not result.revision or result.failed == '1' then return { 'nothing' } end
  local name = node_key(node_id, 'cpu_config')
  local kept = as_table_of(name, 'answered_revision', 'sent_revision', 'sent_count')
  if not carried and not cpu_config_unsent(kept, result, now) then return { 'nothing' } end
  local count = kept.sent_revision == result.revision and tonumber(kept.sent_count) or 0
  redis.call('HSET', name, 'sent_revision', result.revision, 'sent_count', integer(count + 1))
  if carried then redis.call('HSET', name, 'answered_revision', result.revision) end
  return { 'send', redis.call('HGET', cpu_config_result_key(cluster_id), 'text') }
end
local JOURNAL_MOST = JOURNAL_CAP + 1025
local SHAPES_MOST = 128
if redis.call('EXISTS', KEYS[1]) == 0 then return { 'uninitialised' } end
local function size(set) return redis.call('ZCARD', key(set)) end
local function equal(subject, found, expected)
  if found ~= expected then
    finding(subject, 'total', 'there are ' .. integer(found) .. ', expected ' .. integer(expected))
  end
end
local function sum_of(hash)
  local total, counts = 0, redis.call('HGETALL', hash)
  for index = 2, #counts, 2 do total = total + tonumber(counts[index]) end
  return total
end
equal('loads', redis.call('HLEN', key('loads')), size('nodes'))
equal('candidates, unhealthy, over_limit, lingering and waiting together',
  size('candidates') + size('unhealthy') + size('over_limit') + size('lingering') + size('waiting'), size('nodes'))
equal('expiry and finished together', size('expiry') + size('finished'), size('reservations'))
equal('groups:recent', size('groups:recent'), redis.call('HLEN', key('groups')))
equal('artifact_scopes', sum_of(key('artifact_scopes')), size('artifacts'))
local journal, shapes = redis.call('LLEN', key('journal')), redis.call('HLEN', key('shapes'))
if journal > JOURNAL_MOST then finding('journal', 'cap', 'has ' .. integer(journal) .. ' entries') end
if shapes > SHAPES_MOST then finding('shapes', 'cap', 'there are ' .. integer(shapes)) end
for index = 2, #ARGV do
  local cluster_id = ARGV[index]
  local subject = 'CPU templates of cluster ' .. cluster_id
  local nodes = redis.call('ZCARD', cpu_configs_key(cluster_id))
  equal(subject, sum_of(cpu_config_counts_key(cluster_id)), nodes)
  if nodes == 0 and redis.call('EXISTS', cpu_config_result_key(cluster_id)) == 1 then
    finding(subject, 'orphan', 'has a result although no node of it is observed')
  end
end
return findings
