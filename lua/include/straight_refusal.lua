-- Stands inside inline/straight: the usual refusal. Nil: something is out of the ordinary, and the text that follows says
-- why (include/refusal): no candidate is fresh, one may rank as unknown or stands in no class, a limit is exceeded, or the
-- request may be too large for every node. Second: the commonest reason. Nothing is written: note_refused counts it.
-- @include "include/rates"
-- @include "include/nearest"
-- @include "include/row_reads_more"
local TOLD_APART_MAX = 1000
-- Of so many nodes that lack either some are looked at.
local EITHER_OPENS = 8

-- All classes, as include/nearest takes them.
local function all_straight(listed, cpus)
  local classes = {}
  for at = 1, #listed, 2 do
    local cpu, band = string.match(listed[at], '^r,[^,]+,(%-?%d+),(%-?%d+),')
    if cpu then
      classes[#classes + 1] = { name = listed[at], cpu = tonumber(cpu), band = tonumber(band), final = cpu - cpus }
    end
  end
  return classes
end

-- As include/commonest_shortage has it. `what`: cpu | memory; nil: either. `classes`: those with the CPUs; `text_of`: a
-- node's row.
local function straight_shortage(what, classes, asked, text_of)
  local opens = not what and EITHER_OPENS or nil
  local node_id = what ~= 'cpu' and nearest(classes, 'memory', nil, opens)
  if node_id then
    what = 'memory'
  elseif what ~= 'memory' then
    what, node_id = 'cpu', nearest(classes, 'cpu', nil, opens)
    node_id = node_id or nearest(all_straight(asked.listed, asked.cpus), 'cpu', nil, opens)
  end
  local cpu, memory, cpu_load, memory_load, pending_cpu, pending_memory = string.match(node_id and text_of(node_id) or '',
    '^r,(%d+),(%d+),(%d+),(%d+),%d+,%d+,%d+,(%d+),(%d+)')
  if not cpu then return {} end
  if what == 'cpu' then return { 'cpu_count', cpu_load, pending_cpu, integer(asked.cpus), cpu } end
  return { 'memory_bytes', memory_load, pending_memory, integer(asked.bytes), memory }
end

-- How many nodes are in a set. Nothing moves them while requests are refused, so each set is counted once.
local count
do
  local counted = {}

  function count(set)
    counted[set] = counted[set] or redis.call('ZCARD', prefix .. set)
    return counted[set]
  end
end

-- `asked`: cpus, bytes, and what is listed in `classes` of the index.
local function refuse_straight(classes, asked, text_of)
  local left, holdable, memory = count('candidates'), false, 0
  for _, class in ipairs(classes) do holdable = holdable or class.band >= asked.bytes end
  if not holdable or left == 0 or #asked.listed / 2 >= cpu_rows.CLASSES_MAX or count('over_limit') > 0
    or count('unknown:r') > 0 or count('unknown:c') > 0 then
    return nil
  end
  for _, class in ipairs(left <= TOLD_APART_MAX and classes or {}) do
    local tops = cpu_rows.classes[class.name]
    for number = 0, math.min(#tops - 3, math.floor(class.final / CHUNK)) do
      local scores = tops[number + 3] < EMPTY and chunk_heads(class.name, number)
      for at = 1, scores and CHUNK or 0 do
        local row = number * CHUNK + at - 1
        if scores[at] < EMPTY and row <= class.final then
          memory = memory + row_reads.card(prefix .. 'row:' .. class.name .. ':' .. integer(row))
        end
      end
    end
  end
  local reasons = { lingering = count('lingering'), unhealthy = count('unhealthy'), not_ready = count('waiting') }
  local lacking
  if left > TOLD_APART_MAX then
    reasons.insufficient_capacity = left
  else
    reasons.insufficient_cpu, reasons.insufficient_memory = left - memory, memory
    lacking = memory > left - memory and 'memory' or 'cpu'
  end
  local reply, commonest, most = { 'refused', integer(count('nodes')) }, nil, 0
  reply[3] = straight_shortage(lacking, classes, asked, text_of)
  for reason, nodes in pairs(reasons) do
    if nodes > 0 then reply[#reply + 1], reply[#reply + 2] = reason, integer(nodes) end
    if nodes > most or (nodes == most and nodes > 0 and reason < commonest) then commonest, most = reason, nodes end
  end
  return reply, commonest
end

-- Counts one refusal for want of capacity, or as many as `more`.
local function note_refused(commonest, now, more)
  redis.call('HINCRBY', prefix .. 'stats', 'refusals', integer(more or 1))
  count_refused(commonest, now, more)
end
