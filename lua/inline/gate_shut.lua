-- inline/gate_shut.lua: ends the script while a lost ledger is being rebuilt.
-- Reads: now, settings
-- Sets: nothing
if settings.gated_until_ms then
  -- @inline "include/rebuilding"
  local gated = not_rebuilt(settings.gated_until_ms, now)
  if gated then return gated end
end
