-- @include "include/keys"
-- @include "include/stored_settings"
-- What all replicas agreed on. A ledger without it was never opened, or has been emptied.

-- The settings a placement needs; `stored`: their values, where they were read before. Nil and a reply that refuses when
-- the ledger has none ('uninitialised'), is of another format, or names something that this version does not know
-- ('unknown').
local function read_settings(stored)
  local found = stored or read_stored()
  local format, strategy, admission, placement = found[1], found[2], found[3], found[4]
  if format ~= FORMAT then
    if not format and not strategy then return nil, { 'uninitialised' } end
    return nil, { 'unknown', 'format', format or '' }
  end
  local traits = strategy_traits(strategy, found[13])
  if not traits then return nil, { 'unknown', 'strategy', strategy or '' } end
  if admission ~= 'strategy' and admission ~= 'always' then return nil, { 'unknown', 'admission', admission or '' } end
  if not rotation_of_groups(placement) then return nil, { 'unknown', 'group_placement', placement or '' } end
  return {
    strategy = strategy,
    traits = traits,
    admits = traits.admits or admission == 'always',
    report_ttl_ms = tonumber(found[5]),
    placement_reservation_ttl_ms = tonumber(found[6]),
    cpu_unlimited = found[7] == 'unlimited',
    memory_unlimited = found[8] == 'unlimited',
    locality = found[9] == '1',
    refresh_after = found[10] or nil,
    -- Whether a limit counts what is pending: known to be none only when the settings say so.
    limited = found[11] ~= '0',
    gated_until_ms = found[12] or nil,
    fill_to = traits.fill_to or 0,
    -- How much fuller than the least loaded candidate a node may be that holds what is asked for; nil: it is not asked
    -- about.
    slack = traits.by == 'rank' and tonumber(found[14] or '') and found[14] / 1000 or nil,
    scarce = (found[15] or '') ~= '' and found[15] or nil,
  }
end

-- How long bindings live, and how young ones are spared, added to `settings`.
local function read_binding_settings(settings)
  local found = redis.call('HMGET', KEYS[1], 'binding_ttl_ms', 'binding_grace_ms')
  settings.binding_ttl_ms = tonumber(found[1])
  settings.binding_grace_ms = tonumber(found[2])
end
