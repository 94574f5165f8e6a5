-- @include "include/keys"
-- Which candidates hold most of the artifacts a request needs.
local function best_located(keys, eligible)
  return nil
end
