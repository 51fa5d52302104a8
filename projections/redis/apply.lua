-- Applies one bounded batch of a partition atomically with its checkpoint, or nothing of it.
--
-- KEYS[1] the partition's state, KEYS[2] its due set, KEYS[3] its timers, then for each conversation: its window's hash, its recent ids' hash;
-- then the tenants' lists that change.
-- ARGV[1] this server's incarnation, or '' to leave that which is there, [2] the revision the writer believes in ('' for none), [3] offset,
-- [4] timestamp, [5] hash of the last record folded, [6] the offset up to which the partition heals, [7] the layout of windows,
-- [8] the offset up to which all but restoring conversations are folded, [9] those, [10] until when readers are not served (ms),
-- [11] how many conversations, [12] '1' if what is stored grows by the batch, or '0'; then for each conversation:
--   name, '1' when the window's fields all go first, '2' when its recent ids do as well, or '0', n, n names and values to put, m, m names to delete,
--   the same for the recent ids (k names and values, l names), due: 'keep', 'clear' or 'set',
--   timer: 'keep', 'clear' or the time in ms;
-- then for each list: the command, n, its n arguments.
-- Answers {verdict, revision, offset}: 'applied', 'duplicate' (this very batch is in already) or 'fenced' (somebody else wrote).

local state = redis.call('HMGET', KEYS[1], 'revision', 'offset', 'hash')
local revision = state[1] or ''
if revision ~= ARGV[2] then
  if state[2] == ARGV[3] and state[3] == ARGV[5] then
    return {'duplicate', revision, state[2]}
  end
  return {'fenced', revision, state[2] or ''}
end

if ARGV[12] == '1' then
  -- At maxmemory a server refuses a script's first write only, and no DEL: this one changes nothing, and is refused.
  redis.call('HSETNX', KEYS[1], 'revision', '')
end

local last_window = 3 + 2 * tonumber(ARGV[11])
local at = 13
local function take()
  local value = ARGV[at]
  at = at + 1
  return value
end

-- Runs a command on the next n arguments, where n comes first; unpack takes a bounded number of values at a time.
local function run(command, key)
  local n = tonumber(take())
  local last = at + n - 1
  while at <= last do
    local upto = math.min(at + 999, last)
    redis.call(command, key, unpack(ARGV, at, upto))
    at = upto + 1
  end
end

for k = 4, last_window, 2 do
  local name = take()
  local reset = take()
  if reset == '2' then
    redis.call('DEL', KEYS[k], KEYS[k + 1])
  elseif reset == '1' then
    redis.call('DEL', KEYS[k])
  end
  run('HSET', KEYS[k])
  run('HDEL', KEYS[k])
  run('HSET', KEYS[k + 1])
  run('HDEL', KEYS[k + 1])
  local due = take()
  if due == 'set' then
    redis.call('ZADD', KEYS[2], 0, name)
  elseif due == 'clear' then
    redis.call('ZREM', KEYS[2], name)
  end
  local timer = take()
  if timer == 'clear' then
    redis.call('ZREM', KEYS[3], name)
  elseif timer ~= 'keep' then
    redis.call('ZADD', KEYS[3], timer, name)
  end
end

for k = last_window + 1, #KEYS do
  run(take(), KEYS[k])
end

-- A revision is the server's time in microseconds, and grows always: after a loss of memory, or when an older copy of it is put back, no
-- revision comes back that was in force before, or an owner from before that would be taken for the present one.
local now = redis.call('TIME')
local time = tonumber(now[1]) * 1000000 + tonumber(now[2])
local next_revision = string.format('%.0f', math.max(time, (tonumber(revision) or 0) + 1))
redis.call('HSET', KEYS[1], 'revision', next_revision, 'offset', ARGV[3], 'timestamp', ARGV[4], 'hash', ARGV[5],
  'target', ARGV[6], 'layout', ARGV[7], 'ahead', ARGV[8], 'rollbacks', ARGV[9],
  'withheld_until', ARGV[10])
if ARGV[1] ~= '' then
  redis.call('HSET', KEYS[1], 'server', ARGV[1])
end
return {'applied', next_revision, ARGV[3]}
