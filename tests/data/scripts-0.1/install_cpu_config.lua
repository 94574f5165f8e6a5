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
local function read_clock(given, last)
  local now
  if given ~= '' then
    now = tonumber(given)
  else
    local time = redis.call('TIME')
    now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
  end
  if last and tonumber(last) > now then return tonumber(last) end
  return now
end
local function read_cursors(strategy)
  local hash = key('cursors')
  if strategy == 'least_loaded' then
    local found = redis.call('HMGET', hash, 'now', 'journal_base', 'ties', 'ordinary_ties')
    return { now = found[1], journal_base = found[2], ties = found[3], ordinary_ties = found[4] }
  end
  local found = redis.call('HMGET', hash, 'now', 'journal_base', 'ties', 'round_robin', 'ordinary', 'groups', 'fallback')
  return {
    now = found[1], journal_base = found[2], ties = found[3], round_robin = found[4] or nil, ordinary = found[5] or nil,
    groups = found[6] or nil, fallback = found[7] or nil,
  }
end
local function open_clock(given)
  return read_clock(given, redis.call('HGET', key('cursors'), 'now'))
end
local function close_clock(now)
  redis.call('HSET', key('cursors'), 'now', integer(now))
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
local now = open_clock(ARGV[1])
local node_id, cluster_id, version, text = ARGV[2], ARGV[3], ARGV[5], ARGV[6]
local result = cpu_config_result_key(cluster_id)
local known = redis.call('HMGET', result, 'version', 'computed_version')
if known[1] ~= version then return { 'changed' } end
if known[2] ~= version then
  redis.call('HSET', result, 'computed_version', version, 'revision', version, 'recomputed_at_ms', integer(now),
    'text', text, 'failed', text == '' and '1' or '0')
end
return deliver_cpu_config(node_id, cluster_id, ARGV[4] == '1', now)
