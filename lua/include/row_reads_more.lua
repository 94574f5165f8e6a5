-- @include "include/least_counts"
-- Stands where include/row_reads is seen: the readers of rows that most placements do without, unless they are there.
if not row_reads.glance then
  -- The member at a rank, of which nothing more is asked.
  row_reads.glance = row_reads.at

  -- Members with at most this score, `count` of them from one rank on.
  function row_reads.up_to(name, score, from, count)
    return redis.call('ZRANGEBYSCORE', name, '-inf', string.format('%.17g', score), 'LIMIT', from, count)
  end

  -- Among the first with at most this score, at most `share`, those with the least counts, by id. Second: whether there
  -- may be more.
  function row_reads.least_counts(name, most, share)
    local members = row_reads.up_to(name, most, 0, share)
    return least_counts(members, #members), #members == share
  end

  -- Members and scores from the highest down that is at most `score`, but for what is less than `least`, both as text.
  function row_reads.down_from(name, score, least, count)
    return redis.call('ZREVRANGEBYSCORE', name, score, least, 'WITHSCORES', 'LIMIT', '0', count)
  end

  -- How many have at most this score, as it was read.
  function row_reads.count_to(name, score)
    return redis.call('ZCOUNT', name, '-inf', score)
  end

  -- How many have less than this score, as it was read.
  function row_reads.count_below(name, score)
    return redis.call('ZCOUNT', name, '-inf', '(' .. score)
  end

  function row_reads.card(name)
    return redis.call('ZCARD', name)
  end

  -- How many nodes are known to be alike at the head of a row; nil: nobody has counted them.
  function row_reads.alike() return nil end

  -- So many are: they have the same counts and the same score.
  function row_reads.note_alike() end
end
