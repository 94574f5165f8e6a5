-- @include "include/keys"
-- @include "include/reply"
-- @include "include/batch_record"
-- What belongs to a batch as a whole: reading it, undoing it, and telling it again.
local batches = {}
do
  -- Of each creation its id, sandbox id, request and what was given to draw by (ARGV[first] and on, see schedule_batch).
  function batches.creations(first)
    local forms, at = {}, first + 1
    for number = 1, tonumber(ARGV[first]) do
      local length = tonumber(ARGV[at])
      forms[number] = read_request(at + 1, at + length)
      at = at + length + 1
    end
    local creations = {}
    for number = 1, tonumber(ARGV[at]) do
      local form = forms[tonumber(ARGV[at + 3])]
      creations[number] = { id = ARGV[at + 1], sandbox_id = ARGV[at + 2], request = form, entropy = form.entropy }
      at = at + 3
    end
    return creations
  end

  -- A reservation that an earlier call wrote, into its creation, with what became of it since. Nil: there is none, or no
  -- more.
  local function read_earlier(creation, now)
    -- @inline "include/deadlines"
    local earlier = read_reservation(creation.id)
    if not earlier then return nil end
    end_when_due(earlier, now)
    creation.fields = redis.call('HGETALL', reservation_key(creation.id))
    creation.earlier = as_table(creation.fields)
    return creation.earlier
  end

  -- What a batch has placed, as it is told.
  function batches.placed_ones(creations)
    local placed = {}
    for index, creation in ipairs(creations) do
      local earlier, held = creation.earlier, creation.held
      if earlier then
        local endpoint = redis.call('HGET', node_key(earlier.node_id), 'endpoint') or ''
        placed[#placed + 1] = { index - 1, earlier.node_id, endpoint, earlier.degraded or '0', creation.fields }
      elseif held then
        placed[#placed + 1] = { index - 1, held.node_id, held.endpoint, held.degraded, told_of(held) }
      end
    end
    return placed
  end

  local function refused_ones(text, figures)
    local refused, next_figures = {}, string.gmatch((figures or '') .. '\n', '([^\n]*)\n')
    for line in string.gmatch(text, '[^\n]+') do
      local entry, exceeded = {}, {}
      for part in string.gmatch(line, '[^;,]+') do entry[#entry + 1] = part end
      for part in string.gmatch(next_figures() or '', '[^,]+') do exceeded[#exceeded + 1] = part end
      table.insert(entry, 2, exceeded)
      refused[#refused + 1] = entry
    end
    return refused
  end

  -- The reply of a batch that was decided before; second: whether it was another batch. Neither: it was not decided, or
  -- stopped half-way, and then its creations say what is there already.
  function batches.read(batch_id, fingerprint, creations, now)
    local known = as_table_of(key('batch:' .. batch_id), 'fingerprint', 'strategy', 'refused', 'figures')
    if known.fingerprint and known.fingerprint ~= fingerprint then return nil, true end
    local another = false
    for _, creation in ipairs(creations) do
      local earlier = read_earlier(creation, now)
      another = another or (earlier and earlier.fingerprint ~= fingerprint)
    end
    save_rows()
    if another then return nil, true end
    if not known.fingerprint then return nil end
    return { 'decided', known.strategy, '1', batches.placed_ones(creations), refused_ones(known.refused, known.figures) }
  end

  -- The node was not tried after all.
  local function undo_trial(capacity)
    local trial, node = capacity.trial, node_key(capacity.node_id)
    for index, field in ipairs({ 'avoid_tried', 'avoided_until_ms' }) do
      if trial[index] then redis.call('HSET', node, field, trial[index]) else redis.call('HDEL', node, field) end
    end
    redis.call('ZADD', key('avoided_until'), trial.until_ms, capacity.node_id)
    capacity.row.avoided = trial.avoided
  end

  -- Gives back what the batch has held so far, the last first. `groups_before`: the groups that it charged, or that had to
  -- make room, as they were (include/commit_group).
  function batches.undo(held, groups_before)
    for index = #held, 1, -1 do
      local capacity = held[index]
      local row = capacity.row
      if capacity.trial then undo_trial(capacity) end
      row.pending_cpu = row.pending_cpu - capacity.cpu
      row.pending_memory = row.pending_memory - capacity.memory
      row.pending_count = row.pending_count - 1
      if capacity.request.resources then resources.hold(row, capacity.request.resources, -1) end
      if capacity.spread then
        -- @inline "include/spreads"
        tallies.count_spread(capacity.spread, capacity.node_id, -1)
      end
    end
    save_rows()
    for group_key, before in pairs(groups_before) do
      if before then
        redis.call('HSET', key('groups'), group_key, before[1])
        redis.call('ZADD', key('groups:recent'), before[2], group_key)
      else
        redis.call('HDEL', key('groups'), group_key)
        redis.call('ZREM', key('groups:recent'), group_key)
      end
    end
  end
end
