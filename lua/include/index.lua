-- @include "include/heads"
-- @include "include/places"
-- Moving nodes in the index:
--   row:<class>:<n>   zset: the nodes of one class whose CPU load is n, by memory load, then by (starting + pending,
--                     running, paused, id)
--   unknown:<pool>    zset: nodes of a pool that may rank as unknown, by the latter alone
-- Order of writes: the new entry, the node's row, the heads, and only then the old entry goes. What is stopped in between
-- leaves the node where its row says that it is, or where a placement will meet it and put it right (include/distrust).
do
  local EMPTY, CHUNK, class_heads, chunk_heads = cpu_rows.EMPTY, cpu_rows.CHUNK, cpu_rows.class_heads, cpu_rows.chunk_heads

  -- Beyond so many classes a node stands only among those that are chosen by what is free on them.
  local function entry_in_class(place)
    if class_heads(place.class) or redis.call('HLEN', key('classes')) < cpu_rows.CLASSES_MAX then return place end
    return nil
  end

  local function add_entry(entry)
    cpu_rows.enter_class(entry.class, entry.memory or -1)
    return redis.call('ZADD', entry.key, string.format('%.17g', entry.score), entry.member)
  end

  -- Whether a row's head must be looked up when this entry leaves, or moves up to `score`.
  local function raise_head(entry, score)
    if not class_heads(entry.class) then return end
    local chunk = chunk_heads(entry.class, math.floor(entry.row / CHUNK))
    local head = chunk[entry.row % CHUNK + 1]
    if head < entry.score or (score and score <= head) then return end
    local found, least = redis.call('ZRANGE', entry.key, '0', '1', 'WITHSCORES'), EMPTY
    if found[1] and (score or found[1] ~= entry.member) then
      least = tonumber(found[2])
    elseif found[3] then
      least = tonumber(found[4])
    end
    cpu_rows.set_head(entry.class, entry.row, least)
  end

  local function same_entry(one, other)
    return one and other and one.key == other.key and one.member == other.member
  end

  -- Moves a node from where it stood to where it belongs, and writes its row; nil stands for nowhere, and for no row.
  -- Whether it stood in its class or among the free ones alone, only the index itself can say: a class may have come or gone
  -- since. Where `old` is `new`, a node is put where it belongs that may stand elsewhere, or nowhere.
  function cpu_rows.move(node_id, old, new, text)
    local entry, free, old_free, lost
    if old and (old.shadowed or not class_heads(old.class)) then old_free = cpu_rows.free_entry(old) end
    if new then
      entry = entry_in_class(new)
      free = (new.shadowed or not entry) and cpu_rows.free_entry(new) or nil
      local added = entry and add_entry(entry) == 1
      lost = not old or (added and same_entry(old, entry))
      -- Where it was to be moved up and was not there, it stood among the free ones.
      if added and old and lost and not old_free then old_free = cpu_rows.free_entry(old) end
      if free then add_entry(free) end
      if new.unknown then redis.call('ZADD', new.unknown, '0', new.member) end
    end
    if lost then
      -- Nobody would meet it where it was.
      if entry then cpu_rows.lower_head(entry.class, entry.row, entry.score) end
      if free then cpu_rows.lower_head(free.class, free.row, free.score) end
      cpu_rows.flush()
    end
    if text then
      redis.call('HSET', key('loads'), node_id, text)
    else
      redis.call('HDEL', key('loads'), node_id)
    end
    if old then raise_head(old, same_entry(old, entry) and entry.score) end
    if old_free then raise_head(old_free, same_entry(old_free, free) and free.score) end
    if entry then cpu_rows.lower_head(entry.class, entry.row, entry.score) end
    if free then cpu_rows.lower_head(free.class, free.row, free.score) end
    cpu_rows.flush()
    if old and not same_entry(old, entry) and redis.call('ZREM', old.key, old.member) == 0 and not old_free then
      -- Its class came after it.
      old_free = cpu_rows.free_entry(old)
      raise_head(old_free, same_entry(old_free, free) and free.score)
      cpu_rows.flush()
    end
    if old_free and not same_entry(old_free, free) then redis.call('ZREM', old_free.key, old_free.member) end
    if old and old.unknown and not (new and new.unknown == old.unknown and new.member == old.member) then
      redis.call('ZREM', old.unknown, old.member)
    end
  end
end
