-- @include "include/counting"
-- Counts what is pending on a node anew. Of more than a slice the next call goes on.
local function recount_pending(node_id, slice)
  local row, account = row_of(node_id), account_of(node_id)
  if not row or not account then return end
  if recount.go_on(node_id, account, slice or recount.SLICE) >= (slice or recount.SLICE) then return end
  local cpu, memory = account.recount_cpu - account.discount_cpu, account.recount_memory - account.discount_memory
  local count, further = account.recount_count - account.discount_count, recount.resources(node_id, account) or {}
  recount.finish(node_id, account)
  local wrong = row.pending_cpu ~= cpu or row.pending_memory ~= memory or row.pending_count ~= count
  row.pending_cpu, row.pending_memory, row.pending_count = cpu, memory, count
  wrong = resources.set_pending(row, further) or wrong
  if wrong then
    weigh_again(node_id)
    redis.call('HINCRBY', key('stats'), 'rows_recounted', 1)
    tallies.distrust()
  end
end
