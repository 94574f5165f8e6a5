-- recount_row.lua: holds one slice of a row of the index, or of nodes that rank as unknown, against the rows of its nodes.
-- Guarantee: one moment's truth, whatever else is going on; writes nothing.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2]: kind  row | unknown
-- ARGV[3]: name  what follows the kind in the key
-- ARGV[4]: first  rank of the first node of the slice
-- Reply: {'recounted', subject, rule, detail, …} | {'uninitialised'} | {'unknown', what, found}
-- Cost: O(500 nodes)
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/settings"
-- @include "include/rows"
-- @include "include/met"
-- @include "include/findings"
local SLICE = 500
local EMPTY, CHUNK, class_heads, chunk_heads = cpu_rows.EMPTY, cpu_rows.CHUNK, cpu_rows.class_heads, cpu_rows.chunk_heads

local _, refused = read_settings()
if refused then return refused end
local kind, name, first = ARGV[2], ARGV[3], tonumber(ARGV[4])
local subject, full = kind .. ' ' .. name, key(kind .. ':' .. name)
local class, number = string.match(name, '^(.*):(%d+)$')

-- The head that the arrays show of a row is its first score.
if kind == 'row' and class and first == 0 then
  local tops = class_heads(class)
  local shown_head = tops and chunk_heads(class, math.floor(tonumber(number) / CHUNK))[tonumber(number) % CHUNK + 1] or EMPTY
  local head = redis.call('ZRANGE', full, '0', '0', 'WITHSCORES')[2]
  if head and tonumber(head) ~= shown_head then
    finding(subject, 'head', 'begins with ' .. head .. ', its class shows ' .. string.format('%.17g', shown_head))
  end
end
for _, member in ipairs(redis.call('ZRANGE', full, first, first + SLICE - 1)) do
  local node_id = string.sub(member, 31)
  local row = row_of(node_id)
  local place = row and cpu_rows.place_of(row, node_id)
  if not stands_at(place, { key = full, member = member }) then
    finding(subject, 'stranger', 'holds node ' .. node_id .. ', which belongs elsewhere')
  elseif stands_twice(place, { key = full }) then
    finding(subject, 'stranger', 'holds node ' .. node_id .. ', which stands in its class')
  end
end
return findings
