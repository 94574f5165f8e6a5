-- recount_reservations.lua: holds reservations against the lists and names that lead to them.
-- Guarantee: each is judged at one moment, whatever else is going on; writes nothing.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- ARGV[2..]: reservation_ids  at most 100; also ids that only a list knows
-- Reply: {'recounted', subject, rule, detail, …} | {'uninitialised'} | {'unknown', what, found}
-- Cost: O(ids log reservations)
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/clock"
-- @include "include/settings"
-- @include "include/reservations"
-- @include "include/findings"

local _, refused = read_settings()
if refused then return refused end
local now = open_clock(ARGV[1])

local function recount_absent(subject, listing)
  local readable = listing.finished and tonumber(listing.finished) > now
  -- What has stopped being readable is taken off the lists by maintenance.
  if listing.expiry or readable or (listing.reservations and not listing.finished) then
    finding(subject, 'absent', 'is listed but does not exist')
  end
end

local function recount_open(subject, id, reservation, listing)
  local in_node = redis.call('ZSCORE', node_key(reservation.node_id, 'reservations'), id)
  if listing.finished or redis.call('ZSCORE', node_key(reservation.node_id, 'finished'), id) then
    finding(subject, 'listing', 'is ' .. reservation.state .. ' but listed as finished')
  end
  if tonumber(listing.expiry or -1) ~= tonumber(reservation.expires_at_ms) then
    finding(subject, 'expiry', 'expires at ' .. shown(reservation.expires_at_ms) .. ', due at ' .. shown(listing.expiry))
  end
  if tonumber(in_node or -1) ~= tonumber(reservation.sequence) then
    finding(subject, 'listing', 'has sequence ' .. shown(reservation.sequence) .. '; node ' .. reservation.node_id
      .. ' lists it with ' .. shown(in_node))
  end
  local sandbox_id = reservation.sandbox_id
  if sandbox_id then
    local bearer = redis.call('GET', key('sandbox:' .. sandbox_id))
    if bearer ~= id then
      finding(subject, 'name', 'carries sandbox ' .. sandbox_id .. ', which names ' .. shown(bearer))
    end
  end
end

local function recount_finished(subject, id, reservation, listing)
  local cpu, memory, count = held_by(reservation)
  if cpu ~= 0 or memory ~= 0 or count ~= 0 then
    finding(subject, 'held', 'is ' .. reservation.state .. ' but still holds capacity')
  end
  if listing.expiry then finding(subject, 'expiry', 'is ' .. reservation.state .. ' but due to expire') end
  if not listing.finished then finding(subject, 'listing', 'is ' .. reservation.state .. ' but not listed as finished') end
  if redis.call('ZSCORE', node_key(reservation.node_id, 'reservations'), id) then
    finding(subject, 'listing', 'is ' .. reservation.state .. ' but node ' .. reservation.node_id .. ' lists it as open')
  end
  local in_node = redis.call('ZSCORE', node_key(reservation.node_id, 'finished'), id)
  if tonumber(in_node or -1) ~= tonumber(reservation.sequence) then
    finding(subject, 'listing', 'has sequence ' .. shown(reservation.sequence) .. '; node ' .. reservation.node_id
      .. ' lists it as finished with ' .. shown(in_node))
  end
  if reservation.sandbox_id then
    local bearer = redis.call('GET', key('sandbox:' .. reservation.sandbox_id))
    if bearer == id and reservation.state ~= 'settled' then
      finding(subject, 'name', 'is ' .. reservation.state .. ' but still carries sandbox ' .. reservation.sandbox_id)
    end
  end
end

for index = 2, #ARGV do
  local id = ARGV[index]
  local subject, reservation = 'reservation ' .. id, read_reservation(id)
  local listing = {
    reservations = redis.call('ZSCORE', key('reservations'), id), expiry = redis.call('ZSCORE', key('expiry'), id),
    finished = redis.call('ZSCORE', key('finished'), id),
  }
  if not reservation then
    recount_absent(subject, listing)
  elseif reservation.tombstone then
    if listing.reservations or listing.expiry or listing.finished then
      finding(subject, 'listing', 'is a tombstone but listed')
    end
  elseif not reservation.state or not reservation.node_id or not reservation.sequence or not reservation.expires_at_ms then
    finding(subject, 'fields', 'lacks its state, node, sequence or deadline')
  else
    if tonumber(listing.reservations or -1) ~= tonumber(reservation.sequence) then
      finding(subject, 'listing', 'has sequence ' .. reservation.sequence .. ', listed with ' .. shown(listing.reservations))
    end
    local recount = is_open(reservation.state) and recount_open or recount_finished
    recount(subject, id, reservation, listing)
  end
end
return findings
