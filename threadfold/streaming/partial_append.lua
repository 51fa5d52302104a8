-- Adds a delta to a conversation's text in progress and publishes it, in one step.
--
-- A conversation's keys share a hash tag: `meta`, a hash of `turn`, `since` (the log's end when the text began), `chars`, `bytes` and
-- `closing` (the text is being ended and takes nothing more); `text`; `over`, the last turns that a later turn replaced ('': the
-- conversation was erased); `ended`, the last texts that ended (partial_end.lua). `deadlines` is a sorted set of conversations by the time in ms at which a gateway looks after them. The clock is the server's.
--
-- KEYS meta, text, deadlines, over, ended. ARGV turn, delta, its characters, offset or '', since or '', time-out in ms, time to live in s,
-- most bytes, member of `deadlines`, pub/sub channel.
-- Answers {verdict, characters stored, turn stored, since}.

local meta = redis.call('HMGET', KEYS[1], 'turn', 'since', 'chars', 'bytes', 'closing')
local turn, since, chars, bytes = meta[1], meta[2], tonumber(meta[3] or '0'), tonumber(meta[4] or '0')
if turn ~= ARGV[1] then
  for _, over in ipairs(redis.call('LRANGE', KEYS[4], 0, -1)) do
    if over == ARGV[1] then return {'over', 0, '', ''} end
    if over == '' then return {'erased', 0, '', ''} end
  end
  if ARGV[4] ~= '' and tonumber(ARGV[4]) > 0 then return {'gap', 0, '', ''} end
  if turn then return {'other', chars, turn, since} end
  if ARGV[5] == '' then return {'begin', 0, '', ''} end
  local last, began = string.match(redis.call('LINDEX', KEYS[5], 0) or '', '^([^\n]*)\n(%d+)')
  -- Its text began and ended since the caller looked: it may be this one.
  if last == ARGV[1] and tonumber(began) >= tonumber(ARGV[5]) then return {'begin', 0, '', ''} end
  since, chars, bytes = ARGV[5], 0, 0
elseif meta[5] then
  return {'closing', chars, turn, since}
elseif ARGV[4] ~= '' then
  local offset = tonumber(ARGV[4])
  if offset > chars then return {'gap', chars, turn, since} end
  if offset < chars then return {'overlap', chars, turn, since} end
end
if bytes + #ARGV[2] > tonumber(ARGV[8]) then return {'large', chars, turn or '', since} end
redis.call('APPEND', KEYS[2], ARGV[2])
redis.call('HSET', KEYS[1], 'turn', ARGV[1], 'since', since, 'chars', chars + tonumber(ARGV[3]), 'bytes', bytes + #ARGV[2])
redis.call('EXPIRE', KEYS[1], ARGV[7])
redis.call('EXPIRE', KEYS[2], ARGV[7])
local now = redis.call('TIME')
redis.call('ZADD', KEYS[3], now[1] * 1000 + math.floor(now[2] / 1000) + ARGV[6], ARGV[9])
redis.call('PUBLISH', ARGV[10], 'said\n' .. since .. '\n' .. chars .. '\n' .. ARGV[1] .. '\n' .. ARGV[2])
return {'ok', chars + tonumber(ARGV[3]), ARGV[1], since}
