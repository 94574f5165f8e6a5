-- read_class.lua: one class of the index as it is now.
-- Guarantee: one moment's truth; writes nothing.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2]: class  its name, as `classes` has it
-- Reply: {'class', nodes, rows in use, lowest row, highest row, least memory capacity, most memory capacity}
--        {'missing'} | {'uninitialised'} | {'unknown', what, found}
-- Cost: O(rows of the class)
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/settings"
-- @include "include/heads"
local EMPTY, CHUNK, class_heads, chunk_heads = cpu_rows.EMPTY, cpu_rows.CHUNK, cpu_rows.class_heads, cpu_rows.chunk_heads

local _, refused = read_settings()
if refused then return refused end
local class = ARGV[2]
local tops = class_heads(class)
if not tops then return { 'missing' } end
local nodes, used, lowest, highest = 0, 0, nil, 0
for number = 0, #tops - 3 do
  local scores = tops[number + 3] < EMPTY and chunk_heads(class, number) or {}
  for at, score in ipairs(scores) do
    if score < EMPTY then
      local row = number * CHUNK + at - 1
      lowest, highest, used = lowest or row, row, used + 1
      nodes = nodes + redis.call('ZCARD', key('row:' .. class .. ':' .. integer(row)))
    end
  end
end
return { 'class', integer(nodes), integer(used), integer(lowest or 0), integer(highest), integer(tops[1]), integer(tops[2]) }
