-- @include "include/reservations"
-- Callers that never confirm: how many creates have entered the node, by ids newly listed and by what its
-- counters say. Counts only grow, so it does not matter when a report was sampled or which were lost.
local entries = {}

-- How many of the ids that a report newly lists it did not list before: those that another node kept are told each time.
function entries.new(node_id, listed)
  if listed < 1 then return 0 end
  return math.max(0, listed - tonumber(redis.call('HGET', node_key(node_id), 'contested') or '0'))
end

-- So many creates have entered the node: they are owed to what is open there, and to no more than that.
function entries.credit(node_id, account, entered)
  local open = redis.call('ZCARD', node_key(node_id, 'reservations'))
  account.credit = math.max(least_credit(node_id, account), math.min(account.credit + entered, open))
end

-- `listed`: how many ids are new in this report. Only for one whose roster is installed whole: the counters of another show
-- what the roster after it would count again. What came and went between two reports shows in counters and `starting`
-- alone, and so does a resume: of a process that pauses nothing it counts as far as that many creates have failed meanwhile,
-- or two reports in a row show it.
function entries.count(node_id, account, figures, listed)
  local fails = tonumber(figures.create_fails)
  local counts = tonumber(figures.create_successes) + fails
  local starting = counts + tonumber(figures.sandbox_starting_count)
  local grown, failed = counts - account.counts, fails - account.fails
  account.counts, account.fails = counts, fails
  if account.entered < 0 then
    account.entered, account.shown = starting, starting
    account.credit = least_credit(node_id, account)
  else
    local sure, again = math.max(account.entered + listed, counts), account.shown + listed
    account.shown = math.min(starting, math.max(again, sure + grown))
    local entered = account.pauses == 1 and sure
      or math.max(sure, math.min(account.shown, math.max(again, sure + failed)))
    entries.credit(node_id, account, entered - account.entered)
    account.entered = entered
  end
  account.forks_new, account.ends_new = 0, 0
end

-- So many ids are new in a report that is not counted. They have entered all the same: those that ended by being listed
-- were taken from the credit.
function entries.list(node_id, account, new)
  if new < 1 or account.entered < 0 then return end
  account.entered, account.shown = account.entered + new, account.shown + new
  entries.credit(node_id, account, new)
end

-- When all that is unnamed has entered, nothing is held of it any more. A slice of it; whether there is more.
function entries.settle(node_id, account, now)
  local SETTLED_SLICE = 50
  if account.credit <= 0 then return false end
  local waiting = read_unnamed(node_id, account.generation)
  if not waiting or #waiting.h == 0 or surely_entered(node_id, account, waiting) < #waiting.h then return false end
  for index, found in ipairs(waiting.h) do
    if index > SETTLED_SLICE then return true end
    local reservation = read_reservation(found.id)
    if reservation then finish_reservation(reservation, 'settled', 'counters', now) end
  end
  return false
end
