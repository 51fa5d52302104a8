-- Reads a partition's checkpoint and some fields of one window as of one moment: one command in place of a transaction of two.
--
-- KEYS[1] the partition's state; optional: KEYS[2] a window's hash, KEYS[3] the hash of its recent ids. ARGV the names of the fields.
-- Answers the values of revision, offset, timestamp, hash, target, layout, server, ahead and rollbacks, then those of the fields; nothing where there is none.
-- With KEYS[3] a list of the names and values of all recent ids follows.
local found = redis.call('HMGET', KEYS[1], 'revision', 'offset', 'timestamp', 'hash', 'target', 'layout', 'server', 'ahead',
  'rollbacks')
local fields = KEYS[2] and redis.call('HMGET', KEYS[2], unpack(ARGV)) or {}
for i = 1, #fields do
  found[9 + i] = fields[i]
end
if KEYS[3] then
  found[10 + #fields] = redis.call('HGETALL', KEYS[3])
end
return found
