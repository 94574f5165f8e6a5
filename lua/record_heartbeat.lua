-- record_heartbeat.lua: installs one report of a node and settles what it accounts for, in one step.
-- Guarantee: load and settlement change together, so nothing is counted twice or not at all; reports
--            are ordered by the generation handed out here, never by a node's clock.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2]: node_id
-- ARGV[3]: service_instance_id
-- ARGV[4]: sequence  rises with every report of one instance; '' when the node sends none
-- ARGV[5]: endpoint  for a node that registers itself; '' when not carried
-- ARGV[6]: roster_digest  of the sandbox ids listed; '' when the report says nothing about them
-- ARGV[7]: stage  'offer': the claimed ids among the roster follow only when asked for; 'listed': they follow
-- ARGV[8]: status  ready | connecting | unhealthy | lingering, as reported
-- ARGV[9]: details_count  how many of the values from ARGV[24] on are details
-- ARGV[10]: cpu_count
-- ARGV[11]: memory_total_bytes
-- ARGV[12]: allocated_cpu
-- ARGV[13]: allocated_memory_bytes
-- ARGV[14]: paused_allocated_cpu
-- ARGV[15]: paused_allocated_memory_bytes
-- ARGV[16]: cpu_percent
-- ARGV[17]: memory_used_bytes
-- ARGV[18]: sandbox_count
-- ARGV[19]: sandbox_starting_count
-- ARGV[20]: paused_sandbox_count
-- ARGV[21]: create_successes
-- ARGV[22]: create_fails
-- ARGV[23]: reported_at_unix_ms  0: take the server's time
-- ARGV[24..]: details  field, value, … to store as they are, then the listed sandbox ids
-- Reply: {'accepted', generation, roster_changed (1|0), roster_edits, template_due (1|0)} | {'stale', generation}
--        {'roster', claimed sandbox id, …}  call again with stage 'listed' and those of them that the roster lists
--        {'unlisted'} | {'again'} | {'uninitialised'} | {'unknown', what, found}
-- Errors: none
-- Cost: O(open reservations of the node), whatever the roster's size
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/clock"
-- @include "include/settings"
-- @include "include/observe"
-- @include "include/credit"
-- @include "include/identity"
-- @include "include/discovery"
-- @include "include/cpu_configs"

local settings, refused = read_settings()
if refused then return refused end
read_binding_settings(settings)
local now = open_clock(ARGV[1])
-- What is due has ended before this report, and takes no credit of it.
expire_due(now, EXPIRY_SLICE)
save_rows()
local node_id, instance, sequence, digest = ARGV[2], ARGV[3], ARGV[4], ARGV[6]
local known = as_table_of(node_key(node_id), 'discovery', 'service_instance_id', 'sequence', 'generation',
  'last_seen_ms', 'create_successes', 'create_fails', 'avoid_level', 'avoid_tried', 'trouble', 'allocated_cpu', 'allocated_memory_bytes', 'roster_digest', 'roster_edits',
  'explained_count', 'explained_cpu', 'explained_memory', 'explained_any_cpu', 'explained_any_memory')

local listed_already = known.discovery == 'active' or known.discovery == 'lingering'
if not listed_already and (ARGV[5] == '' or redis.call('HGET', KEYS[1], 'self_registration') ~= '1') then
  return { 'unlisted' }
end
local same_instance = known.service_instance_id == instance
local last_sequence = tonumber(known.sequence or '')
if listed_already and sequence ~= '' and same_instance and last_sequence and tonumber(sequence) <= last_sequence then
  return { 'stale', known.generation }
end
-- A report without a sequence does not undo the fence of those before it.
if sequence == '' and same_instance then sequence = known.sequence or '' end
local claims = redis.call('HKEYS', node_key(node_id, 'claims'))
if digest ~= '' and ARGV[7] == 'offer' and #claims > 0 then
  table.insert(claims, 1, 'roster')
  return claims
end

-- Decide: what this report says, and what has grown since the last one.
local details = tonumber(ARGV[9])
local figures = {}
for index, name in ipairs(FIGURES) do figures[name] = tonumber(ARGV[9 + index]) end
if figures.reported_at_unix_ms == 0 then figures.reported_at_unix_ms = now end
local listed = {}
for index = 24 + details, #ARGV do listed[ARGV[index]] = true end
local first_report = known.last_seen_ms == nil
local restarted = not first_report
  and (not same_instance or figures.create_successes < tonumber(known.create_successes))
local credit
if not first_report and not restarted then
  credit = {
    count = figures.create_successes - tonumber(known.create_successes) - (tonumber(known.explained_count or '') or 0),
    cpu = figures.allocated_cpu - tonumber(known.allocated_cpu) - (tonumber(known.explained_cpu or '') or 0),
    memory = figures.allocated_memory_bytes - tonumber(known.allocated_memory_bytes)
      - (tonumber(known.explained_memory or '') or 0),
  }
  if known.explained_any_cpu then credit.cpu = 0 end
  if known.explained_any_memory then credit.memory = 0 end
end

-- Write.
if not listed_already and settle_absence(node_id, now) >= REMOVED_SLICE then
  save_rows()
  return { 'again', 'absence' }
end
if not listed_already then list_node(node_id, ARGV[5], 'active', now, { self_registered = '1' }) end
if listed_already and ARGV[5] ~= '' and redis.call('HGET', node_key(node_id), 'self_registered') == '1' then
  redis.call('HSET', node_key(node_id), 'endpoint', ARGV[5])
end
local generation = redis.call('INCR', key('sequence'))
report_generation = integer(generation)
if digest ~= '' then
  for _, sandbox_id in ipairs(claims) do judge_claim(node_id, sandbox_id, listed[sandbox_id], settings, now, credit) end
end
if credit then apply_credit(node_id, credit, generation, digest ~= '', now) end
local row = new_row(node_id)
local discovery = known.discovery == 'lingering' and 'lingering' or 'active'
local over_limit = observe(row, discovery, ARGV[8], figures, false, read_observation_settings())
local fails = first_report and 0 or figures.create_fails - tonumber(known.create_fails or '0')
if known.avoid_level or known.trouble or fails > 0 then
  -- @include "include/avoidance"
  if first_report or restarted then
    forgive(node_id)
  else
    note_outcomes(node_id, known, math.max(0, fails), figures.create_successes - tonumber(known.create_successes), now)
  end
end
save_rows()

local fields = {
  'service_instance_id', instance, 'generation', integer(generation), 'last_seen_ms', integer(now),
  'status', ARGV[8], 'over_limit', over_limit or '', 'sequence', sequence,
}
for index, name in ipairs(FIGURES) do
  fields[#fields + 1], fields[#fields + 2] = name, integer(figures[name])
end
for index = 24, 23 + details do fields[#fields + 1] = ARGV[index] end
redis.call('HSET', node_key(node_id), unpack(fields))
redis.call('HDEL', node_key(node_id), 'explained_count', 'explained_cpu', 'explained_memory', 'explained_any_cpu',
  'explained_any_memory', 'waiting', 'last_heard_ms')
redis.call('ZADD', key('seen'), integer(now), node_id)
redis.call('ZREM', key('silent'), node_id)
redis.call('ZREM', key('forgotten'), node_id)
close_clock(now)

local changed = digest ~= '' and digest ~= known.roster_digest
if digest ~= '' and not changed then drop_unlisted(node_id, settings.binding_grace_ms, now) end
return { 'accepted', integer(generation), changed and '1' or '0', known.roster_edits or '0',
  cpu_config_due(node_id, now) and '1' or '0' }
