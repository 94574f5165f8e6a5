-- What the keys of this version mean. Raised when a key changes its name, type or content, so that a version
-- which would misread them refuses before its first write.
local FORMAT = '4'
