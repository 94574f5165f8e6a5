-- @include "include/keys"
-- @include "include/reply"
-- Which CPU templates the observed nodes of a cluster have, and what came out of them.
--
--   cpu_configs:<cluster>        zset, scores 0: "<digest> <node>" of every observed node; digest 'none' without a text
--   cpu_config_counts:<cluster>  hash: digest → how many of those nodes have it
--   cpu_config_result:<cluster>  hash: version of the inputs, and the template computed from which of them
--   node:<id>:cpu_config         hash: the node's text and what it was sent; outlives its observation by a day
local KEPT_MS = 86400000
local RESENT_MS = 60000
local MANY_TEMPLATES = 64
local MANY_TEMPLATES_PAUSE_MS = 5000

local function cpu_configs_key(cluster_id) return key('cpu_configs:' .. cluster_id) end
local function cpu_config_counts_key(cluster_id) return key('cpu_config_counts:' .. cluster_id) end
local function cpu_config_result_key(cluster_id) return key('cpu_config_result:' .. cluster_id) end

-- The inputs differ from now on, so whatever was computed from them is out of date.
local function outdate_cpu_configs(cluster_id)
  redis.call('HSET', cpu_config_result_key(cluster_id), 'version', integer(redis.call('INCR', key('sequence'))))
end

-- As above; of a cluster without nodes nothing is kept.
local function touch_cpu_configs(cluster_id)
  if redis.call('EXISTS', cpu_configs_key(cluster_id)) == 0 then
    redis.call('DEL', cpu_config_result_key(cluster_id))
  else
    outdate_cpu_configs(cluster_id)
  end
end

local list_cpu_config, unlist_cpu_config
do
  -- Counted anew each time, so that what a stopped script left out or did twice is right with the next change.
  local function count_cpu_config(cluster_id, digest)
    local count = redis.call('ZLEXCOUNT', cpu_configs_key(cluster_id), '[' .. digest .. ' ', '(' .. digest .. '!')
    if count > 0 then
      redis.call('HSET', cpu_config_counts_key(cluster_id), digest, integer(count))
    else
      redis.call('HDEL', cpu_config_counts_key(cluster_id), digest)
    end
  end

  function list_cpu_config(node_id, cluster_id, digest)
    redis.call('ZADD', cpu_configs_key(cluster_id), 0, digest .. ' ' .. node_id)
    count_cpu_config(cluster_id, digest)
  end

  function unlist_cpu_config(node_id, cluster_id, digest)
    redis.call('ZREM', cpu_configs_key(cluster_id), digest .. ' ' .. node_id)
    count_cpu_config(cluster_id, digest)
  end
end

-- Whether the cluster's template already counts the node's.
local function takes_part(node_id, cluster_id, digest)
  return redis.call('ZSCORE', cpu_configs_key(cluster_id), digest .. ' ' .. node_id) ~= false
    and redis.call('HEXISTS', cpu_config_counts_key(cluster_id), digest) == 1
end

-- The node is observed no more: it takes no part in its cluster's template, but its text is kept,
-- because a node that is back after a flap never sends it again.
local function withdraw_cpu_config(node_id)
  local kept = node_key(node_id, 'cpu_config')
  local about = redis.call('HMGET', kept, 'listed', 'cluster_id', 'digest')
  if about[1] ~= '1' then
    -- Also when a script was stopped just before it said until when.
    if about[1] then redis.call('PEXPIRE', kept, KEPT_MS) end
    return
  end
  unlist_cpu_config(node_id, about[2], about[3])
  touch_cpu_configs(about[2])
  redis.call('HSET', kept, 'listed', '0')
  redis.call('PEXPIRE', kept, KEPT_MS)
end

-- One holder of each distinct template, the first in id order: equal texts add nothing to an intersection.
local function cpu_config_holders(cluster_id)
  local holders = {}
  for _, digest in ipairs(redis.call('HKEYS', cpu_config_counts_key(cluster_id))) do
    local first = redis.call('ZRANGEBYLEX', cpu_configs_key(cluster_id),
      '[' .. digest .. ' ', '(' .. digest .. '!', 'LIMIT', 0, 1)[1]
    if first then holders[#holders + 1] = string.sub(first, #digest + 2) end
  end
  table.sort(holders)
  return holders
end

-- Whether what was computed last (`result`) still has to be sent to a node that was sent `kept` so far. A node
-- never says that it got a template; but it sends its own text only until a report succeeds, so a report
-- without it proves the answer to the last one with it.
local function cpu_config_unsent(kept, result, now)
  if not result.revision or result.failed == '1' or kept.answered_revision == result.revision then return false end
  local count = kept.sent_revision == result.revision and tonumber(kept.sent_count) or 0
  return count < 2 or now - tonumber(result.recomputed_at_ms) <= RESENT_MS
end

-- Whether a report without a text needs a word about templates at all; the usual answer is no.
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

-- What the node is to be sent now; noted as sent.
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
