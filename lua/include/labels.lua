-- @include "include/rows"
-- Labels of nodes. Each source tells its own in a field of the node's hash, as text: name=value;name=value, by name.
--   label_sets   hash: id (1 to 64) → the labels that nodes with it have, as such a text
-- A node's row, its class and the sets of its pool carry the id of its label set alone. `labels` and `label_set` of the
-- hash: those in force. `unlabelled`: it stays without, because there are 64 other label sets.
local labelling = {}
do
  -- Of two that tell the same label the earlier one stands.
  local SOURCES = { 'labels_configured', 'labels_api', 'labels_kubernetes', 'labels_reported' }
  local LABELS_MAX, LABEL_SETS_MAX = 16, 64
  local ids, texts, kept = nil, nil, {}

  -- What all sources together say, were `text` what this one says.
  function labelling.merged(node_id, source, text)
    local found, values, names = redis.call('HMGET', node_key(node_id), unpack(SOURCES)), {}, {}
    for index, name in ipairs(SOURCES) do
      local told = found[index] or ''
      if name == source then told = text end
      for label, value in string.gmatch(told, '([^=;]+)=([^;]+)') do
        if not values[label] and #names < LABELS_MAX then names[#names + 1], values[label] = label, value end
      end
    end
    table.sort(names)
    for index, label in ipairs(names) do names[index] = label .. '=' .. values[label] end
    return table.concat(names, ';')
  end

  local function free_id()
    for number = 1, LABEL_SETS_MAX do
      local id = integer(number)
      if not texts[id] then return id end
    end
    -- Of those that nobody has any more, one. Rows that this script has not saved yet are nowhere else.
    for id, text in pairs(texts) do
      local names = {}
      for index, name in ipairs(node_pools.all_sets()) do names[index] = key(name .. ':' .. id) end
      if not kept[id] and redis.call('EXISTS', unpack(names)) == 0 then
        ids[text], texts[id] = nil, nil
        return id
      end
    end
    return nil
  end

  -- The id of a label set, given one if it has none. Nil and false: there are too many.
  local function id_of(text)
    if text == '' then return nil, true end
    if not ids then
      ids, texts = {}, as_table(redis.call('HGETALL', key('label_sets')))
      for id, known in pairs(texts) do ids[known] = id end
    end
    local id = ids[text]
    if not id then
      id = free_id()
      if not id then return nil, false end
      ids[text], texts[id] = id, text
      redis.call('HSET', key('label_sets'), id, text)
    end
    kept[id] = true
    return id, true
  end

  -- Whether the node may have these labels from this source.
  function labelling.fits(node_id, source, text)
    return select(2, id_of(labelling.merged(node_id, source, text)))
  end

  -- Gives a node with a row the labels that its sources say, this one `text` from now on. False: it stays without any.
  function labelling.apply(node_id, source, text)
    local labels = labelling.merged(node_id, source, text)
    local id, known = id_of(labels)
    row_of(node_id).labels = id
    local fields = { 'labels', known and labels or '', 'label_set', id or '', 'unlabelled', known and '' or '1' }
    if source then fields[7], fields[8] = source, text end
    redis.call('HSET', node_key(node_id), 'still', '', unpack(fields))
    return known
  end
end
