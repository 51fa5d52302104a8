-- Writes a batch of one projection's partition atomically with its checkpoint, or nothing of it.
--
-- KEYS[1] the partition's state, then the hashes that change.
-- ARGV[1] the revision the writer believes in ('' for none), [2] offset, [3] timestamp, [4] hash of the last record, [5] the offset up to
-- which the partition heals, [6] how many values are put in all; then for each hash: n, n names and values to put, m, m names to delete.
-- Answers {verdict, revision}: 'applied', 'duplicate' (this very batch is in already) or 'fenced' (somebody else wrote).

local state = redis.call('HMGET', KEYS[1], 'revision', 'offset', 'hash')
local revision = state[1] or ''
if revision ~= ARGV[1] then
  if state[2] == ARGV[2] and state[3] == ARGV[4] then
    return {'duplicate', revision}
  end
  return {'fenced', revision}
end

if tonumber(ARGV[6]) > 0 then
  -- At maxmemory a server refuses a script's first write only, and no HDEL: this one changes nothing, and is refused.
  redis.call('HSETNX', KEYS[1], 'revision', '')
end

local at = 7
-- unpack takes a bounded number of values at a time.
local function run(command, key)
  local n = tonumber(ARGV[at])
  local last = at + n
  at = at + 1
  while at <= last do
    local upto = math.min(at + 999, last)
    redis.call(command, key, unpack(ARGV, at, upto))
    at = upto + 1
  end
end

for k = 2, #KEYS do
  run('HSET', KEYS[k])
  run('HDEL', KEYS[k])
end

-- The server's time in microseconds, and growing always: after a loss of memory no revision comes back that was in force before.
local now = redis.call('TIME')
local time = tonumber(now[1]) * 1000000 + tonumber(now[2])
local next_revision = string.format('%.0f', math.max(time, (tonumber(revision) or 0) + 1))
redis.call('HSET', KEYS[1], 'revision', next_revision, 'offset', ARGV[2], 'timestamp', ARGV[3], 'hash', ARGV[4], 'target', ARGV[5])
return {'applied', next_revision}
