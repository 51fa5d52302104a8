-- Deletes everything of a conversation.
--
-- KEYS meta, text, deadlines, over, ended. ARGV member, pub/sub channel, '1' if the conversation was erased: a delta that is on its way is not
-- taken any more. Answers how many keys were deleted.

local meta = redis.call('HMGET', KEYS[1], 'turn', 'since')
redis.call('ZREM', KEYS[3], ARGV[1])
if meta[1] then redis.call('PUBLISH', ARGV[2], 'dropped\n' .. meta[2] .. '\n0\n' .. meta[1] .. '\n') end
local deleted = redis.call('DEL', KEYS[1], KEYS[2], KEYS[4], KEYS[5])
if ARGV[3] == '1' then
  redis.call('LPUSH', KEYS[4], '')
  redis.call('EXPIRE', KEYS[4], 3600)
end
return deleted
