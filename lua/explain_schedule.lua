-- explain_schedule.lua: what schedule_sandbox would choose now, and where every node stands.
-- Guarantee: reserves nothing and moves no cursor; the same code decides as in schedule_sandbox.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2]: after  the last id of the page before, '' starts at the first
-- ARGV[3]: limit
-- ARGV[4]: kind  cold | template | ordinary (the request starts here, see include/request)
-- ARGV[5]: cpu_count  0: not stated
-- ARGV[6]: memory_mb  MiB, 0: not stated
-- ARGV[7]: template_id  '' when none
-- ARGV[8]: group_key  '' when the request belongs to no group
-- ARGV[9]: entropy  random integer from the caller
-- ARGV[10]: require  labels that the node must have, name=value,value;name=value; '' when none
-- ARGV[11]: resources  further ones beside CPUs and memory, name=amount;name=amount; '' when none
-- ARGV[12]: spread  what must be spread: max|skew,number,node|label,key; '' when nothing
-- ARGV[13]: excluded_count  how many of the following are excluded nodes
-- ARGV[14..]: excluded  node ids, then locality keys
-- Reply: {'explained', strategy, node_id | '', endpoint, degraded, {refusal} | {}, {node_id, status, reason, rank | '' (a
--        number, and what breaks ties behind it), cpu pressure, memory pressure, pending cpu, pending bytes, pending count,
--        {what keeps it out, current, pending, requested, maximum} | {}, {label, values asked for, value found} | {},
--        spread: what ranks before the rank}, …}
--        {'unadmitted', resource that the settings do not list} | {'overloaded', what}
--        {'again'} | {'refresh'} | {'uninitialised'} | {'unknown', what, found}
-- Cost: O(limit log nodes)
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/cursors"
-- @include "include/settings"
-- @include "include/request"
-- @include "include/choose"
-- @include "include/refusal"
-- @include "include/node_view"

local settings, refused = read_settings()
if refused then return refused end
if settings.refresh_after then return { 'refresh' } end
local cursors = read_cursors()
local now = read_clock(ARGV[1], cursors.now, cursors.offset)
local request = read_request(4)
-- @inline "inline/backlog"
-- @inline "inline/decide"
if not swept then return { 'again', 'expiry' } end

local chosen = context.node_id
local set = key(context.set)
local nodes_in_turn = redis.call('ZCARD', set)
local turn = chosen and redis.call('ZRANK', set, chosen)

-- Ranked strategies: the score, then what breaks ties; whoever reads all pages counts. Rotating ones: how many turns after
-- the chosen node.
local function place_of(node_id, row)
  if settings.traits.by == 'rank' then
    -- @inline "include/ranking"
    local score, ties = rank_of(row, context.demand, settings)
    -- Another one may rank before it or like it: equal ones take turns, a node is filled by rows (include/fullest), or it
    -- was chosen for what it holds.
    if node_id == chosen then score = -2 end
    -- What has something scarce to spare comes behind all others that fit.
    if context.scarce and node_id ~= chosen and is_spared(row, context.scarce) then score = 2 ^ 520 * (2 + score) end
    return string.format('%.17g ', score) .. ties
  end
  if node_id == chosen then return '0' end
  local place = turn and redis.call('ZRANK', set, node_id)
  return place and integer((place - turn) % nodes_in_turn)
end

local reply = {
  'explained', settings.strategy, chosen or '', chosen and redis.call('HGET', node_key(chosen), 'endpoint') or '',
  context.degraded and '1' or '0', chosen and {} or refusal(request, context),
}
local observation
-- What keeps the node out, in figures.
local function figures_against(node_id, row, reason)
  if reason == 'spread' then return context.spread.figures(context.spread.counts(node_id, row)) end
  if reason ~= 'over_limit' then
    -- @inline "include/shortages"
    if reason == 'too_large' then return excess_on(row, context.demand, settings) end
    return shortage_on(row, context.demand, reason)
  end
  -- @inline "include/over_limit"
  observation = observation or read_observation_settings()
  return limit_on(node_id, context.demand, observation) or {}
end

-- The first label that the node lacks or has with another value.
local function label_against(node_id)
  local labels, has = redis.call('HGET', node_key(node_id), 'labels') or '', {}
  for name, value in string.gmatch(labels, '([^=;]+)=([^;]+)') do has[name] = value end
  for name, values in string.gmatch(request.required, '([^=;]+)=([^;]+)') do
    if not string.find(',' .. values .. ',', ',' .. (has[name] or '') .. ',', 1, true) then
      return { name, values, has[name] or '' }
    end
  end
  return {}
end

-- With a spread key the places with fewest of it come first, behind the chosen one.
local function level_of(node_id, row)
  if node_id == chosen then return '-1' end
  return integer(context.spread and context.spread.counts(node_id, row) or 0)
end

local from = ARGV[2] == '' and '-' or '(' .. ARGV[2]
for _, node_id in ipairs(redis.call('ZRANGEBYLEX', key('nodes'), from, '+', 'LIMIT', 0, ARGV[3])) do
  local row = row_of(node_id)
  if row then
    local known = as_table_of(node_key(node_id), 'discovery', 'status', 'last_seen_ms', 'avoided_until_ms')
    local reason = standing(row, known, context.demand, settings, now)
    if reason == 'unhealthy' and context.degraded and node_pools.holds(context.variant, row.pool) then
      reason = request.creation and obstacle(row, context.demand, settings, context.admits)
        or (row.avoided and 'avoided' or '')
    end
    local mismatch = {}
    if node_pools.holds(context.variant, row.pool) and (reason ~= 'unhealthy' or context.degraded)
      and is_masked(row, context.demand) then
      reason, mismatch = 'label', label_against(node_id)
    end
    if reason ~= 'label' and context.spread and node_pools.holds(context.variant, row.pool)
      and (reason ~= 'unhealthy' or context.degraded) and context.spread.blocks(node_id, row) then
      reason = 'spread'
    end
    if row and request.excluded[node_id] and node_pools.holds(context.variant, row.pool) then reason = 'excluded' end
    if context.too_large then reason = 'too_large' end
    if node_id == chosen then reason = '' end
    local rank = reason == '' and place_of(node_id, row)
    local cpu, memory = pressures(row, context.demand)
    reply[#reply + 1] = {
      node_id, derived_status(known, now, settings.report_ttl_ms), reason, rank or '', cpu, memory,
      integer(row.pending_cpu), integer(row.pending_memory), integer(row.pending_count),
      figures_against(node_id, row, reason), reason == 'label' and mismatch or {}, rank and level_of(node_id, row) or '0',
    }
  end
end
return reply
