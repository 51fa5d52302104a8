-- Closes a text, so that it takes nothing more, and reads it.
--
-- KEYS meta, text, deadlines, over. ARGV member, end of the claim or '', turn and since or '', '1' if a later turn replaces this one.
-- Answers {turn, since, text}; nothing when something came since the claim, or the text is another one.

local meta = redis.call('HMGET', KEYS[1], 'turn', 'since')
if not meta[1] then
  redis.call('ZREM', KEYS[3], ARGV[1])
  return {}
end
if ARGV[2] ~= '' and tonumber(redis.call('ZSCORE', KEYS[3], ARGV[1]) or '0') ~= tonumber(ARGV[2]) then return {} end
if ARGV[3] ~= '' and (meta[1] ~= ARGV[3] or meta[2] ~= ARGV[4]) then return {} end
redis.call('HSET', KEYS[1], 'closing', '1')
if ARGV[5] == '1' then
  -- Now and not at its end, which another gateway may bring about as soon as the message that keeps it is in the log.
  redis.call('LREM', KEYS[4], 0, meta[1])
  redis.call('LPUSH', KEYS[4], meta[1])
  redis.call('LTRIM', KEYS[4], 0, 15)
  redis.call('EXPIRE', KEYS[4], 3600)
end
return {meta[1], meta[2], redis.call('GET', KEYS[2]) or ''}
