-- recount_class.lua: holds the heads that a class of the index shows against its rows, one slice of them.
-- Guarantee: one moment's truth, whatever else is going on; writes nothing.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2]: class  its name, as `classes` has it
-- ARGV[3]: first  the first chunk of rows of the slice
-- Reply: {'recounted', subject, rule, detail, …} | {'done'} no rows are left | {'uninitialised'} | {'unknown', what, found}
-- Cost: O(256 rows)
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/settings"
-- @include "include/heads"
-- @include "include/findings"
local SLICE = 16
local EMPTY, CHUNK, class_heads, chunk_heads = cpu_rows.EMPTY, cpu_rows.CHUNK, cpu_rows.class_heads, cpu_rows.chunk_heads

local _, refused = read_settings()
if refused then return refused end
local class, first = ARGV[2], tonumber(ARGV[3])
local subject, tops = 'class ' .. class, class_heads(class)
if not tops or first + 3 > #tops then return { 'done' } end
for number = first, math.min(first + SLICE, #tops - 2) - 1 do
  local scores = chunk_heads(class, number)
  if math.min(unpack(scores)) ~= tops[number + 3] then
    finding(subject, 'heads', 'shows another least for rows from ' .. integer(number * CHUNK) .. ' than they have')
  end
  for at = 1, CHUNK do
    local name = 'row:' .. class .. ':' .. integer(number * CHUNK + at - 1)
    if scores[at] < EMPTY and redis.call('EXISTS', key(name)) == 0 then
      finding(subject, 'heads', 'shows a node in ' .. name .. ', which has none')
    end
  end
end
return findings
