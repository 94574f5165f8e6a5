-- prove_commands.lua: tells which commands the server's ACL withholds from this user.
-- Guarantee: asks, runs none of them, and writes nothing.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2..]: commands  all that scripts and plain reads use
-- Reply: {'proven', withheld command, …} | {'unable'}  this server cannot tell (before Redis 7): try them
-- Cost: O(commands)
-- @include "include/keys"

if not redis.acl_check_cmd then return { 'unable' } end
local scratch, reply = key('scratch:' .. 'string'), { 'proven' }
for index = 2, #ARGV do
  -- Most take a key and some a second one; how they take more does not matter to an ACL.
  if not redis.acl_check_cmd(ARGV[index], scratch, scratch) then reply[#reply + 1] = ARGV[index] end
end
return reply
