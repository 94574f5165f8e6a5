-- record_heartbeat.lua: installs one report of a node and settles what it accounts for, in one step.
-- Guarantee: load, roster and settlement change together, so nothing is counted twice or not at all; reports
--            are ordered by the generation handed out here, never by a node's clock, which only tells a late
--            copy where there is no sequence; one of a process that another has replaced changes nothing.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2]: node_id
-- ARGV[3]: service_instance_id
-- ARGV[4]: sequence  rises with every report of one instance; '' when the node sends none
-- ARGV[5]: endpoint  for a node that registers itself; '' when not carried
-- ARGV[6]: roster_digest  of the sandbox ids listed; '' when the report says nothing about them
-- ARGV[7]: stage  'offer': the roster follows only when asked for; 'whole': its difference to the installed one
--          follows; 'sliced': that is too large for one call, and apply_roster brings it
-- ARGV[8]: roster_edits  of the installed roster that the difference was made from
-- ARGV[9]: added_count  how many ids are newly listed: in the difference, first, or in slices
-- ARGV[10]: acknowledged_generation  of the last answer the node had when it sampled; '' when it does not say
-- ARGV[11]: hung_up  '1': its caller no longer waits, so it may have been sampled long ago
-- ARGV[12]: status  ready | connecting | unhealthy | lingering, as reported
-- ARGV[13]: labels  as the node reports them, name=value;name=value by name; '' when none
-- ARGV[14]: resources  further ones as the node reports them, name=total:allocated;…; '' when none
-- ARGV[15]: details_count  how many of the values from ARGV[31] on are details
-- ARGV[16]: stable_digest  of the status, the figures that seldom change and the details; while it is the same they are
--           not written again
-- ARGV[17]: cpu_count
-- ARGV[18]: memory_total_bytes
-- ARGV[19]: allocated_cpu
-- ARGV[20]: allocated_memory_bytes
-- ARGV[21]: paused_allocated_cpu
-- ARGV[22]: paused_allocated_memory_bytes
-- ARGV[23]: cpu_percent
-- ARGV[24]: memory_used_bytes
-- ARGV[25]: sandbox_count
-- ARGV[26]: sandbox_starting_count
-- ARGV[27]: paused_sandbox_count
-- ARGV[28]: create_successes
-- ARGV[29]: create_fails
-- ARGV[30]: reported_at_unix_ms  on the node's clock; 0: it does not say
-- ARGV[31..]: details  field, value, … to store as they are, then the difference: ids newly listed, then those left out
-- Reply: {'accepted', generation, roster_follows (1|0), roster_edits, template_due (1|0), more (1|0),
--        unlabelled (1|0: it stays without labels, because there are too many label sets), {changes of reservations},
--        contested id, …}
--        {'stale', generation} | {'roster', roster_edits}: read the installed roster and call again
--        {'unlisted'} | {'again'} | {'uninitialised'} | {'unknown', what, found} | {'not_rebuilt', ms, of what}
-- Cost: O(difference + unnamed reservations of the node, at most 1,024), whatever the roster's size
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/clock"
-- @include "include/settings"
-- @include "include/limit_names"
-- The settings that every script reads, and after them the limits.
local stored = read_stored(unpack(LIMITS))
local settings
do
  local refused
  settings, refused = read_settings(stored)
  if refused then return refused end
end
local now = open_clock(ARGV[1])
-- @inline "inline/straight_report"
-- @include "include/new_rows"
-- @include "include/figures"
-- @include "include/report_times"
-- @include "include/resting"
-- @include "include/entered"
-- @include "include/overdue"

read_binding_settings(settings)
-- @inline "inline/gate_shut"
local node_id, instance, sequence, digest = ARGV[2], ARGV[3], ARGV[4], ARGV[6]
local hung_up = ARGV[11] == '1'
-- What is due has ended before this report, and takes no credit of it.
if not overdue.finish_on({ node_id }, now) then return { 'again', 'expiry' } end
local known = as_table_of(node_key(node_id), 'discovery', 'service_instance_id', 'sequence', 'generation',
  'last_seen_ms', 'create_successes', 'create_fails', 'avoid_level', 'avoid_tried', 'trouble', 'allocated_cpu',
  'allocated_memory_bytes', 'roster_digest', 'roster_edits', 'instances', 'interval_ms', 'reports',
  'labels_reported', 'label_set', 'unlabelled', 'cordoned', 'reported_at_unix_ms')

local listed_already = known.discovery == 'active' or known.discovery == 'lingering'
if not listed_already and (ARGV[5] == '' or redis.call('HGET', KEYS[1], 'self_registration') ~= '1') then
  return { 'unlisted' }
end
local same_instance = known.service_instance_id == instance
-- Whether another process has replaced this one, and the instances known once this one reports.
local function processes()
  -- @inline "include/instances"
  local call = { instance = instance, hung_up = hung_up }
  return is_replaced(known, call, now, settings.report_ttl_ms), replaced_by(known, instance)
end
local behind = sequence ~= '' and same_instance and tonumber(sequence) <= (tonumber(known.sequence or '') or -1)
-- Without one, a late copy is known by the node's clock, held against itself alone; one that goes back further was set back.
if sequence == '' and same_instance and ARGV[30] ~= '0' then
  local back_ms = tonumber(known.reported_at_unix_ms or '0') - ARGV[30]
  behind = back_ms > 0 and back_ms <= settings.report_ttl_ms
end
local overdue = known.last_seen_ms and now - tonumber(known.last_seen_ms) > settings.report_ttl_ms
-- A sequence that begins anew after a silence is a restart, unless the call may have been sampled long ago.
-- Of a node that nothing is known of, or nothing since a loss, any report may be such a one.
local function unheard()
  return not known.instances and not known.last_seen_ms or redis.call('ZSCORE', key('waiting'), node_id) ~= false
end
if listed_already and ((behind and not overdue) or (hung_up and (behind or unheard())) or (processes())) then
  return { 'stale', known.generation or '0' }
end
local tells_roster = digest ~= '' and not hung_up
local edits = known.roster_edits or '0'
local unchanged = tells_roster and digest == known.roster_digest
if tells_roster and not unchanged and (ARGV[7] == 'offer' or ARGV[8] ~= edits) then return { 'roster', edits } end
if not listed_already then
  -- A node that registers itself; false while there is more to be settled of its absence.
  local function register()
    -- @inline "include/discovery"
    local all = settle_returns({ node_id }, { [node_id] = ARGV[5] }, now)
    if all then list_node(node_id, ARGV[5], 'active', now, { self_registered = '1' }) end
    save_rows()
    if all then note_listed(node_id, 'active') end
    return all
  end
  if not register() then return { 'again', 'absence' } end
end

-- Decide: what this report says, and what has grown since the last one.
local figures = {}
for index, name in ipairs(FIGURES) do figures[name] = tonumber(ARGV[16 + index]) end
figures.resources = ARGV[14]
-- The first report at all, or of a process that has begun anew.
local first = known.last_seen_ms == nil or not same_instance or behind
  or figures.create_successes < tonumber(known.create_successes)
local interval_ms = tonumber(known.interval_ms or '')
-- A silence is no interval: what comes after it would wait for as long to prove anything.
if not first and not hung_up and not overdue then
  interval_ms = report_times.learned_interval(interval_ms, now - tonumber(known.last_seen_ms))
end
local reports = first and {} or report_times.parse(known.reports)

-- Write.
if listed_already and ARGV[5] ~= '' and redis.call('HGET', node_key(node_id), 'self_registered') == '1' then
  redis.call('HSET', node_key(node_id), 'endpoint', ARGV[5])
end
local generation = redis.call('INCR', key('sequence'))
report_generation = integer(generation)
local account = account_of(node_id)
account.generation = generation
for _, name in ipairs(REPORTED) do account[name] = figures[name] or account[name] end
local sliced = tells_roster and not unchanged and ARGV[7] == 'sliced'
-- How many ids are newly listed; whether the installed roster was edited; which ids another node keeps; whether more is to
-- be ended.
local roster = { listed = 0, edited = false, contested = {}, more = false }
account.roster_whole = 0
if tells_roster and not sliced then
  local function install_roster()
    -- @inline "include/install"
    if not unchanged then
      local added, removed, last_added = {}, {}, 30 + ARGV[15] + ARGV[9]
      for index = 31 + ARGV[15], #ARGV do
        local part = index <= last_added and added or removed
        part[#part + 1] = ARGV[index]
      end
      roster.listed, roster.edited = #added, added[1] ~= nil or removed[1] ~= nil
      roster.contested = install_added(node_id, added, generation, now)
      install_removed(node_id, removed, generation, #reports == 0, now)
    end
    account.roster_whole = roster.contested[1] and 0 or 1
    local acknowledged = tonumber(ARGV[10])
    if acknowledged and same_instance and not (first and known.last_seen_ms)
      and acknowledged <= tonumber(known.generation or '0') then
      undo_deletes(node_id, acknowledged)
      roster.more = drop_absent(node_id, acknowledged, now, now)
    end
    local received = { reports = first and '' or known.reports, interval_ms = interval_ms, sequence = sequence }
    roster.more = judge_absence(node_id, received, settings, generation, now) or roster.more
  end
  install_roster()
end
if not first and not hung_up and (digest == '' or string.sub(digest, 1, 2) == '0:') then
  (function()
    -- @inline "include/credit"
    credit_growth(node_id, known, figures, digest ~= '', now)
  end)()
end
if first then account.entered, account.credit, account.pauses = -1, least_credit(node_id, account), 0 end
if figures.paused_sandbox_count > 0 then account.pauses = 1 end
if account.roster_whole == 1 then
  local clean = rest_on(node_id, account, generation, account.entered < 0)
  entries.count(node_id, account, figures, entries.new(node_id, roster.listed))
  if redis.call('EXISTS', node_key(node_id, 'sandboxes')) == 1 then
    roster.more = entries.settle(node_id, account, now) or roster.more
  end
  review_doubts(node_id, account, clean, now)
else
  entries.list(node_id, account, entries.new(node_id, roster.listed))
end

local unlabelled = false
-- The node's row and hash, once everything that the report settles has been settled.
local function write_report()
  local RECOUNTED_MAX = 256
  local row = new_row(node_id)
  local discovery = known.discovery == 'lingering' and 'lingering' or 'active'
  figures.lowered_cpu, figures.lowered_memory = lowered_by(account)
  account.lowered_cpu, account.lowered_memory = figures.lowered_cpu, figures.lowered_memory
  if ARGV[13] ~= (known.labels_reported or '') or (row.labels or '') ~= (known.label_set or '')
    or known.unlabelled == '1' then
    -- @inline "include/labels"
    unlabelled = not labelling.apply(node_id, 'labels_reported', ARGV[13])
  end
  -- A cordon ends with the process that it was put on; until then the node is one that drains, whatever it reports.
  local cordoned = known.cordoned == instance
  local status = cordoned and 'lingering' or ARGV[12]
  local over_limit = observe(row, discovery, status, figures, false, read_observation_settings())
  -- Forgiven by a script that was stopped half-way.
  if row.avoided and not known.avoid_level then row.avoided = nil end
  local fails = first and 0 or figures.create_fails - tonumber(known.create_fails or '0')
  if known.avoid_level or known.trouble or fails > 0 then
    -- @inline "include/avoidance"
    if first then
      forgive(node_id)
    else
      note_outcomes(node_id, known, math.max(0, fails), figures.create_successes - tonumber(known.create_successes), now)
    end
  end
  -- Each open reservation counts at most once, so a row that counts another number cannot be right: a script was
  -- stopped half-way. Errors that cancel out are found by one report in sixteen, whatever the order of reports.
  local open_count = redis.call('ZCARD', node_key(node_id, 'reservations'))
  if row.pending_count + account.discount_count ~= open_count
    or (open_count == 0 and (row.pending_cpu ~= 0 or row.pending_memory ~= 0))
    or (open_count > 0 and open_count <= RECOUNTED_MAX and generation * 0.6180339887 % 1 < 1 / 16) then
    -- @inline "include/pending"
    recount_pending(node_id)
  end
  weigh_again(node_id)
  save_rows()
  if generation * 0.6180339887 % 1 < 1 / 16 then
    -- @inline "include/stand_again"
    stand_again(node_id)
  end

  -- As with the settings (put_settings): every report and event asks for tens of fields, so the hash shall be a table, which
  -- a node's machine info makes it where one is told.
  local ABOUT = 'A node: what its last report told, and what is known of it and of its sandboxes.'
  -- A report without a sequence does not undo the fence of those before it.
  local kept_sequence = sequence == '' and same_instance and known.sequence or sequence
  local fields = {
    'still', '', 'service_instance_id', instance, 'generation', integer(generation), 'last_seen_ms', integer(now),
    'status', status, 'over_limit', over_limit or '', 'sequence', kept_sequence, 'stable', ARGV[16],
    'resources_reported', ARGV[14], 'about', ABOUT,
  }
  if cordoned then fields[#fields + 1], fields[#fields + 2] = 'told_status', ARGV[12] end
  if not same_instance then fields[#fields + 1], fields[#fields + 2] = 'instances', select(2, processes()) end
  if interval_ms then fields[#fields + 1], fields[#fields + 2] = 'interval_ms', integer(interval_ms) end
  if tells_roster or first then
    -- Earlier ones prove what they do of sandboxes that were told before them, so where none is waited for they go.
    local waits = sliced or redis.call('EXISTS', node_key(node_id, 'assigned'), node_key(node_id, 'deleted')) > 0
    local told = tells_roster and report_times.format(waits and reports or {}, generation, now) or ''
    fields[#fields + 1], fields[#fields + 2] = 'reports', told
  end
  for _, name in ipairs(FIGURES) do fields[#fields + 1], fields[#fields + 2] = name, integer(figures[name]) end
  for index = 31, 30 + ARGV[15] do fields[#fields + 1] = ARGV[index] end
  if tells_roster and not unchanged and not sliced and not roster.contested[1] then
    fields[#fields + 1], fields[#fields + 2] = 'roster_digest', digest
  end
  redis.call('HSET', node_key(node_id), unpack(fields))
  local over = { 'explained_count', 'explained_cpu', 'explained_memory', 'explained_any_cpu', 'explained_any_memory',
    'waiting', 'last_heard_ms', 'labels_before' }
  if sliced or roster.contested[1] then over[#over + 1] = 'roster_digest' end
  if known.cordoned and not cordoned then over[#over + 1], over[#over + 2] = 'cordoned', 'told_status' end
  redis.call('HDEL', node_key(node_id), unpack(over))
end
write_report()
if roster.edited then edits = integer(redis.call('HINCRBY', node_key(node_id), 'roster_edits', 1)) end
if tells_roster and not sliced then note_conflicts(node_id, #roster.contested) end
-- Seen last: what stands there need not be looked for in the others.
redis.call('ZREM', key('silent'), node_id)
redis.call('ZREM', key('forgotten'), node_id)
redis.call('ZADD', key('seen'), integer(now), node_id)
close_clock(now)
return (function()
  -- @inline "include/cpu_configs"
  return {
    'accepted', integer(generation), sliced and '1' or '0', edits, cpu_config_due(node_id, now) and '1' or '0',
    roster.more and '1' or '0', unlabelled and '1' or '0', told_changes(), unpack(roster.contested),
  }
end)()
