-- @include "include/discount"
-- @include "include/spreads"
-- One record per sandbox: its binding, and what was told of it.
--   bindings[sandbox]    'recorded_at_ms,sequence,mark,cpu,memory,paused,deleted node id' caller group key
--                        (the last two on lines of their own; behind the caller and a tab its spread key, if it has one)
-- sequence: the ledger's when it was told, or the generation of the report that first listed it.
-- mark: t told (confirm, assignment, event, `sandbox_id` of a schedule); l only listed.
-- cpu, memory: 0 when nobody stated them. deleted: the sequence when a delete event named it, else 0.
-- A node's account counts the records of the ids that its installed roster lists.
local parse_record, record_text
do
  local RECORD = '^(%d+),(%d+),(%a),(%d+),(%d+),(%d),(%d+) ([^\n]*)\n?([^\n\t]*)\t?([^\n]*)\n?(.*)$'
  local RECORD_BYTES = 250

  function parse_record(text)
    local recorded_at_ms, sequence, mark, cpu, memory, paused, deleted, node_id, caller, spread, group_key =
      string.match(text, RECORD)
    if not node_id then
      -- Written by hand, or by nobody we know: a binding and nothing more.
      recorded_at_ms, node_id = string.match(text, '^(%d+) (.*)$')
      sequence, mark, cpu, memory, paused, deleted, caller, spread, group_key = '0', 'l', '0', '0', '0', '0', '', '', ''
    end
    return {
      recorded_at_ms = tonumber(recorded_at_ms), sequence = tonumber(sequence), mark = mark, cpu = tonumber(cpu),
      memory = tonumber(memory), paused = paused == '1', deleted = tonumber(deleted), node_id = node_id,
      caller = caller, group_key = group_key, spread = spread, counted_key = spread,
      counted_at = spread ~= '' and deleted == '0' and node_id or nil,
    }
  end

  local function format_record(record)
    local text = string.format('%d,%d,%s,%d,%d,%d,%d ', record.recorded_at_ms, record.sequence, record.mark, record.cpu,
      record.memory, record.paused and 1 or 0, record.deleted) .. record.node_id
    local spread = record.spread or ''
    local keys = '\n' .. record.caller .. (spread ~= '' and '\t' .. spread or '') .. '\n' .. record.group_key
    if keys == '\n\n' or #text + #keys <= RECORD_BYTES then return keys == '\n\n' and text or text .. keys end
    -- What is counted stays, whatever it takes.
    return spread ~= '' and text .. '\n\t' .. spread .. '\n' or text
  end

  -- Counts a record where it belongs now, and no more where it was read: `counted_at` its node, for its spread key then.
  local function count_place(record, node_id)
    local spread = record.spread or ''
    local before, before_key = record.counted_at, record.counted_key
    if before == node_id and before_key == spread then return end
    if before then tallies.count_spread(before_key, before, -1) end
    if node_id then tallies.count_spread(spread, node_id, 1) end
    record.counted_at, record.counted_key = node_id, spread
  end

  -- The text of a record that the caller writes now.
  function record_text(record)
    if record.counted_at or (record.spread or '') ~= '' then
      count_place(record, (record.spread or '') ~= '' and record.deleted == 0 and record.node_id or nil)
    end
    return format_record(record)
  end

  -- Makes the open reservation that is told to be a sandbox count itself, or not while a record counts for it. `spread`:
  -- only one with this key; `but`: not this one.
  local function count_carrier(sandbox_id, counts, spread, but)
    local id = redis.call('GET', key('sandbox:' .. sandbox_id))
    if not id or id == but then return end
    local carrier = as_table_of(reservation_key(id), 'spread', 'spread_counted', 'state', 'node_id')
    carrier.reservation_id = id
    if (carrier.state == 'pending' or carrier.state == 'confirmed') and (not spread or carrier.spread == spread) then
      tallies.count_reservation_spread(carrier, counts)
    end
  end

  -- Of records that the caller deletes now, also such as count no more since a delete event. A reservation that is still
  -- open counts for its sandbox again.
  function tallies.forget_spread_records(sandbox_ids, records)
    for _, sandbox_id in ipairs(sandbox_ids) do
      local record = records[sandbox_id]
      if (record.spread or '') ~= '' then
        count_place(record, nil)
        count_carrier(sandbox_id, true)
      end
    end
  end

  -- The sandbox is told to be what became of a reservation, which the caller counts no more. Another one that carries the
  -- id counts itself from now on, unless it has the same key.
  function tallies.give_spread(sandbox_id, record, reservation)
    local before, spread = record.spread or '', reservation.spread or ''
    record.spread = reservation.spread
    if before == spread then return end
    if before ~= '' then count_carrier(sandbox_id, true) end
    if spread ~= '' then count_carrier(sandbox_id, false, spread, reservation.reservation_id) end
  end
end

local function record_of(sandbox_id)
  local text = redis.call('HGET', key('bindings'), sandbox_id)
  return text and parse_record(text) or nil
end

-- The records of several sandboxes by id; at most 500 at once.
local function records_of(sandbox_ids)
  local found = {}
  if not sandbox_ids[1] then return found end
  for index, text in ipairs(redis.call('HMGET', key('bindings'), unpack(sandbox_ids))) do
    if text then found[sandbox_ids[index]] = parse_record(text) end
  end
  return found
end

local function is_listed(node_id, sandbox_id)
  return redis.call('SISMEMBER', node_key(node_id, 'sandboxes'), sandbox_id) == 1
end

-- Adds (direction 1) or takes back (-1) what a listed sandbox's record means to its node's account.
local function count_record(record, direction)
  local account = account_of(record.node_id)
  if not account then return end
  weigh_again(record.node_id)
  if record.mark ~= 't' then
    local counted = record.sequence > account.baseline_generation and 'unexplained' or 'baseline_ids'
    account[counted] = account[counted] + direction
    return
  end
  account.told_cpu = account.told_cpu + direction * record.cpu
  account.told_memory = account.told_memory + direction * record.memory
  if record.cpu == 0 then account.unsized_cpu = account.unsized_cpu + direction end
  if record.memory == 0 then account.unsized_memory = account.unsized_memory + direction end
  if record.deleted > 0 and not record.paused then
    account.deleted_cpu = account.deleted_cpu + direction * record.cpu
    account.deleted_memory = account.deleted_memory + direction * record.memory
  end
end

-- Changes a record in place, its share in the account with it.
local function change_record(sandbox_id, record, changes)
  local listed = is_listed(record.node_id, sandbox_id)
  if listed then count_record(record, -1) end
  for name, value in pairs(changes) do record[name] = value end
  if listed then count_record(record, 1) end
  redis.call('HSET', key('bindings'), sandbox_id, record_text(record))
end

-- The order of everything, so far: a report received later has a higher generation.
local function sequence_now()
  return tonumber(redis.call('GET', key('sequence')) or '0')
end
