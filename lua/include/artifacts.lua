-- @include "include/keys"
local function forget_artifacts(node_id)
end
