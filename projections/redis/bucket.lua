-- Settles one gateway with a tenant's shared bucket; threadfold/quotas/bucket.py (settle) is the same arithmetic.
-- KEYS[1]: the bucket. ARGV: rate (units a second), capacity, owed (used beyond what was leased; below zero: given back), wanted.
-- Returns what is granted and what is left, as text (a number would lose its fraction).
local rate, capacity = tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local kept = redis.call('HMGET', KEYS[1], 'level', 'at')
local level, at = tonumber(kept[1]), tonumber(kept[2])
if level and at then
  level = math.min(capacity, level + math.max(0, now - at) * rate)
else
  level = capacity
end
level = math.min(capacity, level - tonumber(ARGV[3]))
local granted = math.max(0, math.min(tonumber(ARGV[4]), level))
level = level - granted
redis.call('HSET', KEYS[1], 'level', string.format('%.17g', level), 'at', string.format('%.17g', now))
-- After that long it is full again, which is what a missing bucket is taken for.
redis.call('EXPIRE', KEYS[1], math.min(31536000, math.ceil((capacity - level) / rate) + 60))
return {string.format('%.17g', granted), string.format('%.17g', level)}
