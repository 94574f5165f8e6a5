-- @include "include/reply"
-- What a recount finds wrong: {'recounted', subject, rule, detail, …}. A recount writes nothing.
local findings = { 'recounted' }

local function finding(subject, rule, detail)
  findings[#findings + 1] = subject
  findings[#findings + 1] = rule
  findings[#findings + 1] = detail
end

-- Redis tells a missing value as false.
local function shown(value)
  if not value or value == '' then return 'nothing' end
  return type(value) == 'number' and integer(value) or tostring(value)
end
