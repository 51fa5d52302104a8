-- Keeps what a process reports of itself until it is older than so many seconds, by the server's clock.
-- KEYS[1]: the reports; KEYS[2]: when each came. ARGV[1]: seconds; ARGV[2], ARGV[3]: name and report, an empty one to end it, or none to read only.
-- Returns names and reports, one after the other.
local now = tonumber(redis.call('TIME')[1])
local seconds = tonumber(ARGV[1])
for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now - seconds)) do
  redis.call('HDEL', KEYS[1], name)
  redis.call('ZREM', KEYS[2], name)
end
if ARGV[3] == '' then
  redis.call('HDEL', KEYS[1], ARGV[2])
  redis.call('ZREM', KEYS[2], ARGV[2])
  return {}
end
if ARGV[2] then
  redis.call('HSET', KEYS[1], ARGV[2], ARGV[3])
  redis.call('ZADD', KEYS[2], now, ARGV[2])
  redis.call('EXPIRE', KEYS[1], 2 * seconds)
  redis.call('EXPIRE', KEYS[2], 2 * seconds)
  return {}
end
return redis.call('HGETALL', KEYS[1])
