-- @include "include/rows"
-- Nodes that refuse what they are given are avoided for a while, then tried with one creation.
--   avoided_until    zset: node → until when; +inf once it may be tried. As long as it stands there, it is watched.
--   node:<id>        avoid_level (how many times in a row), avoided_until_ms, avoid_mark (what was placed later says
--                    more), avoid_tried (1: a creation was), trouble ('since,refusals,successes' since its last report)
--   refused:<caller>|<image or template>   the node that refused it lately, '*' when a second one did: then it is the
--                    request that is at fault, and no more nodes are blamed for it until one of its kind succeeds
local READMITTED_SLICE = 64
local SECOND_MS = 1000

local function read_avoid_settings()
  local found = redis.call('HMGET', KEYS[1], 'avoid_refusals', 'avoid_first_ms', 'avoid_longest_ms', 'avoid_share_percent',
    'report_ttl_ms')
  return {
    refusals = tonumber(found[1] or '0'), first_ms = tonumber(found[2] or '0'), longest_ms = tonumber(found[3] or '0'),
    share_percent = tonumber(found[4] or '0'), report_ttl_ms = tonumber(found[5]),
  }
end

-- How many may be avoided at once, so that one cause cannot rule out the fleet: a share of the candidates, and always one.
local function may_avoid(node_id, now, settings)
  -- One whose time is up is only watched, and not avoided.
  local until_ms = tonumber(redis.call('ZSCORE', key('avoided_until'), node_id) or '0')
  if until_ms > now and until_ms < math.huge then return true end
  local eligible = redis.call('ZCARD', key('candidates')) + redis.call('ZCARD', key('avoided'))
  local most = math.max(1, math.ceil(eligible * settings.share_percent / 100))
  return redis.call('ZCOUNT', key('avoided_until'), '(' .. integer(now), '(+inf') < most
end

local function avoid(node_id, level, now, settings)
  if not may_avoid(node_id, now, settings) then return end
  local until_ms = integer(now + math.min(settings.first_ms * 2 ^ (math.min(level, 32) - 1), settings.longest_ms))
  redis.call('HSET', node_key(node_id), 'avoid_level', integer(level), 'avoided_until_ms', until_ms, 'avoid_tried', 0,
    'avoid_mark', redis.call('GET', key('sequence')) or '0', 'still', '')
  redis.call('HDEL', node_key(node_id), 'trouble')
  redis.call('ZADD', key('avoided_until'), until_ms, node_id)
  redis.call('HINCRBY', key('stats'), 'nodes_avoided', 1)
  row_of(node_id).avoided = true
end

local function forgive(node_id)
  redis.call('HDEL', node_key(node_id), 'avoid_level', 'avoided_until_ms', 'avoid_mark', 'avoid_tried', 'trouble')
  redis.call('ZREM', key('avoided_until'), node_id)
  row_of(node_id).avoided = nil
end

-- Those whose time is up may be chosen again.
local function readmit_avoided(now)
  local due = redis.call('ZRANGEBYSCORE', key('avoided_until'), '-inf', integer(now), 'LIMIT', 0, READMITTED_SLICE)
  for _, node_id in ipairs(due) do
    redis.call('ZADD', key('avoided_until'), '+inf', node_id)
    local row = row_of(node_id)
    if row then row.avoided = nil end
  end
end

-- A creation goes to a node that is watched. If it is the one that tries it, no other does until it told how it
-- ended, or as much time again has passed.
local function note_trial(node_id, now)
  redis.call('HSET', node_key(node_id), 'avoid_tried', 1)
  if row_of(node_id).avoided then return end
  local settings, level = read_avoid_settings(), tonumber(redis.call('HGET', node_key(node_id), 'avoid_level') or '1')
  local until_ms = integer(now + math.min(settings.first_ms * 2 ^ (math.min(level, 32) - 1), settings.longest_ms))
  redis.call('HSET', node_key(node_id), 'avoided_until_ms', until_ms)
  redis.call('ZADD', key('avoided_until'), until_ms, node_id)
  row_of(node_id).avoided = true
end

local function parse_trouble(text, now, longest_ms)
  local since, refusals, successes = string.match(text or '', '^(%d+),(%d+),(%d+)$')
  if not since or now - tonumber(since) > longest_ms then return { since = now, refusals = 0, successes = 0 } end
  return { since = tonumber(since), refusals = tonumber(refusals), successes = tonumber(successes) }
end

local function keep_trouble(node_id, trouble)
  redis.call('HSET', node_key(node_id), 'trouble',
    string.format('%d,%d,%d', trouble.since, trouble.refusals, trouble.successes), 'still', '')
end

local function origin_key(reservation)
  return key('refused:' .. (reservation.caller or '') .. '|' .. reservation.origin)
end

-- Whether a second node refused what this reservation was made of, and none took it since.
local function is_request_at_fault(reservation, settings)
  if not reservation.origin or settings.longest_ms == 0 then return false end
  local name = origin_key(reservation)
  local refuser = redis.call('GET', name)
  local told = (not refuser or refuser == reservation.node_id) and reservation.node_id or '*'
  redis.call('SET', name, told, 'PX', integer(settings.longest_ms))
  return told == '*'
end

-- A caller says that the node would not create this.
local function note_refusal(reservation, now)
  local settings, node_id = read_avoid_settings(), reservation.node_id
  if settings.refusals == 0 or not row_of(node_id) or is_request_at_fault(reservation, settings) then return end
  local known = as_table_of(node_key(node_id), 'avoid_level', 'avoid_mark', 'trouble')
  if known.avoid_level then
    if tonumber(reservation.sequence) > tonumber(known.avoid_mark) then
      avoid(node_id, tonumber(known.avoid_level) + 1, now, settings)
    end
    return
  end
  local trouble = parse_trouble(known.trouble, now, math.max(SECOND_MS, settings.report_ttl_ms))
  trouble.refusals = trouble.refusals + 1
  keep_trouble(node_id, trouble)
  if trouble.refusals >= settings.refusals and trouble.refusals > trouble.successes then avoid(node_id, 1, now, settings) end
end

-- A caller says that the node created this.
local function note_creation(reservation, now)
  if reservation.origin then redis.call('DEL', origin_key(reservation)) end
  local node_id = reservation.node_id
  local known = as_table_of(node_key(node_id), 'avoid_level', 'avoid_mark', 'trouble')
  if known.avoid_level then
    if row_of(node_id) and tonumber(reservation.sequence) > tonumber(known.avoid_mark) then forgive(node_id) end
  elseif known.trouble then
    local trouble = parse_trouble(known.trouble, now, math.max(SECOND_MS, read_avoid_settings().report_ttl_ms))
    trouble.successes = trouble.successes + 1
    keep_trouble(node_id, trouble)
  end
end

-- A report says how many creations failed and succeeded since the one before. `known`: the node's fields before it.
local function note_outcomes(node_id, known, fails, successes, now)
  local settings, level = read_avoid_settings(), tonumber(known.avoid_level or '')
  local trouble = parse_trouble(known.trouble, now, math.max(SECOND_MS, settings.report_ttl_ms))
  local refusals = trouble.refusals + fails
  if settings.refusals == 0 or (level and successes > fails) then
    forgive(node_id)
  elseif level then
    if fails > 0 and known.avoid_tried == '1' then avoid(node_id, level + 1, now, settings) end
  elseif refusals >= settings.refusals and refusals > math.max(successes, trouble.successes) then
    avoid(node_id, 1, now, settings)
  elseif now - trouble.since >= SECOND_MS then
    redis.call('HDEL', node_key(node_id), 'trouble')
  end
end
