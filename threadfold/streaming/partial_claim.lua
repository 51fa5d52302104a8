-- Claims conversations whose deadline has passed: until the claim ends no other gateway gets them.
--
-- KEYS deadlines. ARGV length of the claim in ms, most members. Answers {members, the time in ms at which the claim ends}.

local now = redis.call('TIME')
local ms = now[1] * 1000 + math.floor(now[2] / 1000)
local found = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ms, 'LIMIT', 0, ARGV[2])
for _, member in ipairs(found) do redis.call('ZADD', KEYS[1], ms + ARGV[1], member) end
return {found, ms + ARGV[1]}
