-- Applies one bounded batch of a partition atomically with its checkpoint, or nothing of it.
--
-- KEYS[1] the partition's state, KEYS[2] its due set, then for each conversation: meta, tail, recents.
-- ARGV[1] the revision the writer believes in ('' for none), [2] offset, [3] timestamp, [4] hash of the last record folded,
-- [5] the offset up to which the partition heals, [6] how many recent ids to keep; then for each conversation:
--   name, meta, '1' to replace the tail or '0', how many entries to drop at its head, n, n entries, m, m recent ids,
--   due: 'keep', 'clear' or 'set'.
-- Answers {verdict, revision, offset}: 'applied', 'duplicate' (this very batch is in already) or 'fenced' (somebody else wrote).

local state = redis.call('HMGET', KEYS[1], 'revision', 'offset', 'hash')
local revision = state[1] or ''
if revision ~= ARGV[1] then
  if state[2] == ARGV[2] and state[3] == ARGV[4] then
    return {'duplicate', revision, state[2]}
  end
  return {'fenced', revision, state[2] or ''}
end

local at = 7
local function take()
  local value = ARGV[at]
  at = at + 1
  return value
end

-- Pushes ARGV[at .. at+n-1]; unpack takes a bounded number of values at a time.
local function push(key, n)
  local last = at + n - 1
  while at <= last do
    local upto = math.min(at + 999, last)
    redis.call('RPUSH', key, unpack(ARGV, at, upto))
    at = upto + 1
  end
end

local keep = tonumber(ARGV[6])
for k = 3, #KEYS, 3 do
  local name = take()
  redis.call('SET', KEYS[k], take())
  local replace, drop, n = take(), tonumber(take()), tonumber(take())
  if replace == '1' then
    redis.call('DEL', KEYS[k + 1])
  elseif drop > 0 then
    redis.call('LTRIM', KEYS[k + 1], drop, -1)
  end
  push(KEYS[k + 1], n)
  local ids = tonumber(take())
  push(KEYS[k + 2], ids)
  if ids > 0 then
    redis.call('LTRIM', KEYS[k + 2], -keep, -1)
  end
  local due = take()
  if due == 'set' then
    redis.call('ZADD', KEYS[2], 0, name)
  elseif due == 'clear' then
    redis.call('ZREM', KEYS[2], name)
  end
end

-- A revision is the server's time in microseconds, and grows always: after a loss of memory, or when an older copy of it is put back, no
-- revision comes back that was in force before, or an owner from before that would be taken for the present one.
local now = redis.call('TIME')
local time = tonumber(now[1]) * 1000000 + tonumber(now[2])
local next_revision = string.format('%.0f', math.max(time, (tonumber(revision) or 0) + 1))
redis.call('HSET', KEYS[1], 'revision', next_revision, 'offset', ARGV[2], 'timestamp', ARGV[3], 'hash', ARGV[4],
  'target', ARGV[5])
return {'applied', next_revision, ARGV[2]}
