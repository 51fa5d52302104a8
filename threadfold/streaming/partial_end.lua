-- Deletes a text that has ended.
--
-- KEYS meta, text, deadlines. ARGV member, turn, since, pub/sub channel, '1' if the text has no message. Answers 1, or 0 if the text is another one.

local meta = redis.call('HMGET', KEYS[1], 'turn', 'since')
if meta[1] ~= ARGV[2] or meta[2] ~= ARGV[3] then return 0 end
redis.call('DEL', KEYS[1], KEYS[2])
redis.call('ZREM', KEYS[3], ARGV[1])
if ARGV[5] == '1' then redis.call('PUBLISH', ARGV[4], 'dropped\n' .. meta[2] .. '\n0\n' .. meta[1] .. '\n') end
return 1
