-- Reads a partition's checkpoint and some fields of one window as of one moment: one command in place of a transaction of two.
--
-- KEYS[1] the partition's state; optional: KEYS[2] a window's hash, KEYS[3] the hash of its recent ids. ARGV the names of the fields.
-- Without KEYS[3], fields of more than 128 KiB together are not read: many calls are answered in one go, and all wait for the last.
-- Answers the values of revision, offset, timestamp, hash, target, layout, server, ahead, rollbacks and withheld_until, then those of the fields; nothing where there is none.
-- What follows is, with KEYS[3], a list of the names and values of all recent ids; or 1 if the fields are too large.
local found = redis.call('HMGET', KEYS[1], 'revision', 'offset', 'timestamp', 'hash', 'target', 'layout', 'server', 'ahead',
  'rollbacks', 'withheld_until')
if not KEYS[2] then
  return found
end
local size = 0
for i = 1, KEYS[3] and 0 or #ARGV do
  size = size + redis.call('HSTRLEN', KEYS[2], ARGV[i])
end
local fields = size <= 131072 and redis.call('HMGET', KEYS[2], unpack(ARGV)) or {}
for i = 1, #ARGV do
  found[10 + i] = fields[i] or false
end
if KEYS[3] then
  found[11 + #ARGV] = redis.call('HGETALL', KEYS[3])
elseif size > 131072 then
  found[11 + #ARGV] = 1
end
return found
