-- inline/notice_silence.lua: nodes that have not reported for report_ttl are unhealthy from now on. Ends the script while
-- more have fallen silent than one call takes.
-- Reads: now, settings
-- Sets: nothing
if redis.call('ZCOUNT', key('seen'), '-inf', '(' .. integer(now - settings.report_ttl_ms)) > 0 then
  -- @inline "include/silence"
  read_binding_settings(settings)
  local retired = retire_silent(now, settings.report_ttl_ms, settings.binding_ttl_ms)
  save_rows()
  if retired >= SILENCE_SLICE then return { 'again', 'silence' } end
end
