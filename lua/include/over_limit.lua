-- @include "include/observe"
-- Which limit keeps a request off a node, with the figures: { limit, current, pending, requested, maximum }.
local LOOKED_AT = 32

-- Percentages of what is on the node, pending and requested; they add up to that of all three.
local function percent_shares(current, pending, requested, whole)
  local first, second = percent(current, whole), percent(current + pending, whole)
  return { first, second - first, percent(current + pending + requested, whole) - second }
end

-- What each limit is held against, in the order of LIMITS. A request that creates nothing meets reports alone.
local function shares_of(row, figures, demand, counting)
  local none = { 0, 0, 0 }
  local cpu, memory, count, starting = none, none, none, 0
  if counting then
    cpu, memory = { 0, row.pending_cpu, demand.cpu }, { 0, row.pending_memory, demand.memory }
    count, starting = { 0, row.pending_count, 1 }, figures.sandbox_starting_count
  end
  local function with(current, share) return { current, share[2], share[3] } end
  return {
    with(figures.sandbox_count + starting, count), with(figures.sandbox_starting_count, count),
    { figures.cpu_percent, 0, 0 },
    percent_shares(row.cpu_load - figures.paused_allocated_cpu, cpu[2], cpu[3], figures.cpu_count),
    { percent(figures.memory_used_bytes, figures.memory_total_bytes), 0, 0 },
    percent_shares(row.memory_load - figures.paused_allocated_memory_bytes, memory[2], memory[3],
      figures.memory_total_bytes),
    with(figures.sandbox_count + starting + figures.paused_sandbox_count, count),
    with(row.cpu_load, cpu), with(row.memory_load, memory),
  }
end

-- Nil: none of them.
local function limit_on(node_id, demand, observation)
  -- @inline "include/unreported"
  local row, figures = row_of(node_id), read_figures(node_id) or unreported_figures()
  local shares = shares_of(row, figures, demand, demand.creation and observation.count_pending)
  for index, name in ipairs(LIMITS) do
    local maximum, share = tonumber(observation.limits[index] or ''), shares[index]
    if maximum and share[1] + share[2] + share[3] > maximum then
      return { name, integer(share[1]), integer(share[2]), integer(share[3]), integer(maximum) }
    end
  end
  return nil
end

-- Of the limit that keeps most nodes out, among those looked at: the figures of the first node it keeps out. `over`: the
-- candidates that only this request brings over a limit.
local function commonest_limit(context, excluded, over)
  local observation, found, tally, commonest = read_observation_settings(), {}, {}, nil
  local node_ids = redis.call('ZRANGE', key('over_limit'), 0, LOOKED_AT - 1)
  for index = 1, math.min(LOOKED_AT, #(over or {})) do node_ids[#node_ids + 1] = over[index] end
  for _, node_id in ipairs(node_ids) do
    local limit = not excluded[node_id] and limit_on(node_id, context.demand, observation)
    if limit then
      local name = limit[1]
      found[name], tally[name] = found[name] or limit, (tally[name] or 0) + 1
      if not commonest or tally[name] > tally[commonest] then commonest = name end
    end
  end
  return commonest and found[commonest] or {}
end
