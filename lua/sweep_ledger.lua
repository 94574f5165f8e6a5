-- sweep_ledger.lua: works off one slice of everything that falls due by itself.
-- Guarantee: nothing depends on it having run – every script treats what is due as done – it only
--            keeps the backlog short and the key space bounded.
-- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
-- ARGV[1]: now_ms  virtual clock for tests, '' for the server's own
-- Reply: {'swept', how much was done; 0: nothing was due} | {'uninitialised'} | {'unknown', what, found}
-- Cost: one slice of one kind of work, about 1,000 small steps
-- @include "include/keys"
-- @include "include/reply"
-- @include "include/clock"
-- @include "include/settings"
-- @include "include/discovery"
-- @include "include/identity"
-- @include "include/silence"
local SLICE = 64

local settings, refused = read_settings()
if refused then return refused end
read_binding_settings(settings)
local now = open_clock(ARGV[1])

local release_one, forget_one, forget_outlived
do
  local BINDING_SLICE = 200

  local function due(set)
    return redis.call('ZRANGEBYSCORE', key(set), '-inf', integer(now), 'LIMIT', 0, 1)[1]
  end

  -- Bindings of a node that has been gone or silent for longer than they may live.
  local function forget_bindings(node_id)
    local listed = forget_listed(node_id, BINDING_SLICE, now)
    if listed < BINDING_SLICE then redis.call('ZREM', key('forgotten'), node_id) end
    return listed + 1
  end

  -- Bindings that no roster has listed for as long as they may live; how many.
  function forget_outlived()
    local outlived = redis.call('ZRANGEBYSCORE', key('assigned'), '-inf', integer(now - settings.binding_ttl_ms),
      'LIMIT', 0, BINDING_SLICE)
    if outlived[1] then
      redis.call('ZREM', key('assigned'), unpack(outlived))
      local held = {}
      for sandbox_id, record in pairs(records_of(outlived)) do
        held[record.node_id] = held[record.node_id] or {}
        table.insert(held[record.node_id], sandbox_id)
      end
      for holder, ids in pairs(held) do unbind(holder, ids, now) end
    end
    return #outlived
  end

  function release_one()
    local removed = due('removed')
    return removed and release_removed(removed, now) + 1 or 0
  end

  function forget_one()
    local forgotten = due('forgotten')
    return forgotten and forget_bindings(forgotten) or 0
  end
end

local take_off_absent
do
  -- Some of the nodes that were silent for so long that a self-registered one leaves the list; others are to
  -- be seen another second, for a discovered node stays silent for as long as it is listed.
  local function absent_nodes()
    local ABSENT_SLICE, SELF_REGISTERED_MS = 16, 24 * 3600 * 1000
    local long_ago = integer(now - SELF_REGISTERED_MS)
    local pages = math.ceil(redis.call('ZCOUNT', key('silent'), '-inf', long_ago) / ABSENT_SLICE)
    if pages == 0 then return {} end
    local first = ABSENT_SLICE * (math.floor(now / 1000) % pages)
    return redis.call('ZRANGEBYSCORE', key('silent'), '-inf', long_ago, 'LIMIT', first, ABSENT_SLICE)
  end

  -- Self-registered nodes that were silent for too long; how many.
  function take_off_absent()
    local absent = {}
    for _, node_id in ipairs(absent_nodes()) do
      if redis.call('HGET', node_key(node_id), 'self_registered') == '1' then absent[#absent + 1] = node_id end
    end
    delist_nodes(absent, now, settings)
    return #absent
  end
end

-- One kind of work after the other, until a slice is done: several kinds at once would hold up everybody for their sum.
-- Each of them comes to an end, so the next ones get their turn.
local done = 0
for _, work in ipairs({
  function() return overdue.work_off(now, SLICE) end,
  function() return retire_silent(now, settings.report_ttl_ms, settings.binding_ttl_ms) end,
  release_one, forget_one, forget_outlived,
  function() return purge_finished(now, SLICE) end,
  take_off_absent,
}) do
  done = done + work()
  save_rows()
  if done >= SLICE then break end
end
do
  local ENDED_SLICE = 1000
  local over = math.min(ENDED_SLICE, redis.call('ZCOUNT', key('ended'), '-inf', integer(now - ENDED_MS)))
  if over > 0 then redis.call('ZREMRANGEBYRANK', key('ended'), 0, integer(over - 1)) end
end
tallies.fold_straight()
close_clock(now)
return { 'swept', integer(done) }
