-- @include "include/keys"
-- @include "include/cpu_configs"
-- What a script left that was stopped half-way: a node takes part exactly as long as it is `observed`.
local function mend_cpu_config(node_id, observed)
  local kept = as_table_of(node_key(node_id, 'cpu_config'), 'listed', 'cluster_id', 'digest')
  if not kept.listed then return end
  local member = redis.call('ZSCORE', cpu_configs_key(kept.cluster_id), kept.digest .. ' ' .. node_id)
  if kept.listed == '1' and not observed then
    withdraw_cpu_config(node_id)
  elseif kept.listed == '1' and not member then
    list_cpu_config(node_id, kept.cluster_id, kept.digest)
    touch_cpu_configs(kept.cluster_id)
  elseif kept.listed ~= '1' and member then
    unlist_cpu_config(node_id, kept.cluster_id, kept.digest)
    touch_cpu_configs(kept.cluster_id)
  end
end
