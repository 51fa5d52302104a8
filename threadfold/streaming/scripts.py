"""What Redis does in one step with assistant text in progress. All keys of a script share a hash
tag; the clock is the server's.

Of a conversation there are: ``meta``, a hash of ``turn``, ``since`` (the log's end when the text
began), ``chars``, ``bytes`` and ``closing`` (it is being ended and takes nothing more); ``text``;
and ``over``, the last turns that a later one took the place of. ``deadlines`` is a sorted set of
conversations by the time in ms at which they are looked after.
"""

from __future__ import annotations

APPEND = """
-- KEYS: meta, text, deadlines, over. ARGV: turn, delta, its characters, offset or '', since or '', timeout ms, ttl s, most bytes, member,
-- channel. Returns {verdict, characters held, turn held, since}.
local meta = redis.call('HMGET', KEYS[1], 'turn', 'since', 'chars', 'bytes', 'closing')
local turn, since, chars, bytes = meta[1], meta[2], tonumber(meta[3] or '0'), tonumber(meta[4] or '0')
if turn ~= ARGV[1] then
  for _, over in ipairs(redis.call('LRANGE', KEYS[4], 0, -1)) do
    if over == ARGV[1] then return {'over', 0, '', ''} end
  end
  if turn then return {'other', chars, turn, since} end
  if ARGV[4] ~= '' and tonumber(ARGV[4]) > 0 then return {'gap', 0, '', ''} end
  if ARGV[5] == '' then return {'begin', 0, '', ''} end
  since, chars, bytes = ARGV[5], 0, 0
elseif meta[5] then
  return {'closing', chars, turn, since}
elseif ARGV[4] ~= '' then
  local offset = tonumber(ARGV[4])
  if offset > chars then return {'gap', chars, turn, since} end
  if offset < chars then return {'held', chars, turn, since} end
end
if bytes + #ARGV[2] > tonumber(ARGV[8]) then return {'large', chars, turn or '', since} end
redis.call('APPEND', KEYS[2], ARGV[2])
redis.call('HSET', KEYS[1], 'turn', ARGV[1], 'since', since, 'chars', chars + tonumber(ARGV[3]), 'bytes', bytes + #ARGV[2])
redis.call('EXPIRE', KEYS[1], ARGV[7])
redis.call('EXPIRE', KEYS[2], ARGV[7])
local now = redis.call('TIME')
redis.call('ZADD', KEYS[3], now[1] * 1000 + math.floor(now[2] / 1000) + ARGV[6], ARGV[9])
redis.call('PUBLISH', ARGV[10], 'said\\n' .. since .. '\\n' .. chars .. '\\n' .. ARGV[1] .. '\\n' .. ARGV[2])
return {'ok', chars + tonumber(ARGV[3]), ARGV[1], since}
"""

READ = """
-- KEYS: meta, text. Returns {turn, since, text} or nothing.
local meta = redis.call('HMGET', KEYS[1], 'turn', 'since')
if not meta[1] then return {} end
return {meta[1], meta[2], redis.call('GET', KEYS[2]) or ''}
"""

CLAIM = """
-- KEYS: deadlines. ARGV: for how many ms, at most how many. Returns members and the time at which the claim ends.
local now = redis.call('TIME')
local ms = now[1] * 1000 + math.floor(now[2] / 1000)
local found = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ms, 'LIMIT', 0, ARGV[2])
for _, member in ipairs(found) do redis.call('ZADD', KEYS[1], ms + ARGV[1], member) end
return {found, ms + ARGV[1]}
"""

CLOSE = """
-- KEYS: meta, text, deadlines, over. ARGV: member, the end of the claim or '', turn and since or '', '1' if a later turn takes its place.
-- Returns {turn, since, text} or nothing, when something came since the claim, or the text is another one.
local meta = redis.call('HMGET', KEYS[1], 'turn', 'since')
if not meta[1] then
  redis.call('ZREM', KEYS[3], ARGV[1])
  return {}
end
if ARGV[2] ~= '' and tonumber(redis.call('ZSCORE', KEYS[3], ARGV[1]) or '0') ~= tonumber(ARGV[2]) then return {} end
if ARGV[3] ~= '' and (meta[1] ~= ARGV[3] or meta[2] ~= ARGV[4]) then return {} end
redis.call('HSET', KEYS[1], 'closing', '1')
if ARGV[5] == '1' then
  -- Now and not at its end, which another gateway may bring about as soon as the message that keeps it is in the log.
  redis.call('LREM', KEYS[4], 0, meta[1])
  redis.call('LPUSH', KEYS[4], meta[1])
  redis.call('LTRIM', KEYS[4], 0, 15)
  redis.call('EXPIRE', KEYS[4], 3600)
end
return {meta[1], meta[2], redis.call('GET', KEYS[2]) or ''}
"""

END = """
-- KEYS: meta, text, deadlines. ARGV: member, turn, since, channel, '1' if there is no message.
local meta = redis.call('HMGET', KEYS[1], 'turn', 'since')
if meta[1] ~= ARGV[2] or meta[2] ~= ARGV[3] then return 0 end
redis.call('DEL', KEYS[1], KEYS[2])
redis.call('ZREM', KEYS[3], ARGV[1])
if ARGV[5] == '1' then redis.call('PUBLISH', ARGV[4], 'dropped\\n' .. meta[2] .. '\\n0\\n' .. meta[1] .. '\\n') end
return 1
"""

FORGET = """
-- KEYS: meta, text, deadlines, over. ARGV: member, channel.
local meta = redis.call('HMGET', KEYS[1], 'turn', 'since')
redis.call('ZREM', KEYS[3], ARGV[1])
if meta[1] then redis.call('PUBLISH', ARGV[2], 'dropped\\n' .. meta[2] .. '\\n0\\n' .. meta[1] .. '\\n') end
return redis.call('DEL', KEYS[1], KEYS[2], KEYS[4])
"""
