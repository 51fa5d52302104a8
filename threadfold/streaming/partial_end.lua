-- Deletes a text that has ended.
--
-- `ended` is a list of the last 16 texts that had a message, each `turn`, `since`, how many of its characters were said again (0) and
-- its beginning, on a line each: so that repeats are known (partial_repeat.lua).
--
-- KEYS meta, text, deadlines, over, ended. ARGV member, turn, since, pub/sub channel, '1' if the text has no message, bytes of a
-- beginning, seconds for which it is kept. Answers 1, or 0 if the text is another one.

local meta = redis.call('HMGET', KEYS[1], 'turn', 'since')
if meta[1] ~= ARGV[2] or meta[2] ~= ARGV[3] then return 0 end
if ARGV[5] ~= '1' and redis.call('EXISTS', KEYS[2]) == 1 then
  redis.call('LPUSH', KEYS[5], meta[1] .. '\n' .. meta[2] .. '\n0\n' .. redis.call('GETRANGE', KEYS[2], 0, ARGV[6] - 1))
  redis.call('LTRIM', KEYS[5], 0, 15)
  redis.call('EXPIRE', KEYS[5], ARGV[7])
end
redis.call('DEL', KEYS[1], KEYS[2])
redis.call('ZREM', KEYS[3], ARGV[1])
if ARGV[5] == '1' then redis.call('PUBLISH', ARGV[4], 'dropped\n' .. meta[2] .. '\n0\n' .. meta[1] .. '\n') end
return 1
