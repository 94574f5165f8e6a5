-- recount_shape.lua: holds one slice of a ranking index against the rows of its nodes.
-- Guarantee: one moment's truth, whatever else is going on; what the journal still has to tell is not held
--            against the index. Writes nothing.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2]: shape  its name, as `shapes` has it
-- ARGV[3]: after  the last node id of the slice before, '' starts at the first
-- Reply: {'recounted', subject, rule, detail, …} | {'unfinished'}  being built, or too far behind to be judged
--        {'uninitialised'} | {'unknown', what, found}
-- Errors: none
-- Cost: O(500 nodes + 2,000 journal entries)
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/settings"
-- @include "include/scores"
-- @include "include/findings"
local SLICE = 500
local LAG_MAX = 2000
local AVOIDED_OF = { any = 'avoided', ready = 'avoided_ready', degraded = 'avoided_last_resort' }
local SET_OF = { any = 'candidates', ready = 'ready', degraded = 'last_resort' }

local name = ARGV[2]
local settings, refused = read_settings()
if refused then return refused end
local cursor, stage = string.match(redis.call('HGET', key('shapes'), name) or '', '^(%d+),%d+,(%a)')
if stage ~= 'c' then return { 'unfinished' } end
local base = tonumber(redis.call('HGET', key('rotations'), 'journal_base') or '') or 0
local lag = base + redis.call('LLEN', key('journal')) - tonumber(cursor)
if tonumber(cursor) < base or lag < 0 or lag > LAG_MAX then return { 'unfinished' } end

local function parse_shape()
  local rest, variant = string.match(name, '^(.-):(%a+)$')
  if not rest or not SET_OF[variant] then rest, variant = name, 'any' end
  local cpu, memory_mb = string.match(rest, '^([%d-]+):([%d-]+)$')
  return shape_of(cpu ~= nil, tonumber(cpu or '') or 0, tonumber(memory_mb or '') or 0, variant)
end

local shape, subject = parse_shape(), 'shape ' .. name
local moved = {}
for _, member in ipairs(redis.call('LRANGE', key('journal'), tonumber(cursor) - base, -1)) do
  moved[string.sub(member, 31)] = true
end

local from = ARGV[3] == '' and '-' or '(' .. ARGV[3]
for _, node_id in ipairs(redis.call('ZRANGEBYLEX', key('nodes'), from, '+', 'LIMIT', 0, SLICE)) do
  local row = row_of(node_id)
  if row and not moved[node_id] then
    local score = redis.call('ZSCORE', shape.key, row_member(row, node_id))
    local expected = holds_pool(shape.variant, row.pool) and (score_of(row, shape, settings)) or nil
    if expected ~= (score and tonumber(score) or nil) then
      finding(subject, 'index', 'ranks node ' .. node_id .. ' with ' .. shown(score) .. ' instead of '
        .. (expected and string.format('%.17g', expected) or 'leaving it out'))
    end
  end
end
local size, expected_size = redis.call('ZCARD', shape.key), redis.call('ZCARD', key(SET_OF[shape.variant]))
expected_size = expected_size + redis.call('ZCARD', key(AVOIDED_OF[shape.variant]))
if lag == 0 and size ~= expected_size then
  finding(subject, 'size', 'ranks ' .. integer(size) .. ' nodes of ' .. integer(expected_size))
end
return findings
