-- Reads a conversation's text in progress.
--
-- KEYS meta, text. Answers {turn, since, text} or nothing.

local meta = redis.call('HMGET', KEYS[1], 'turn', 'since')
if not meta[1] then return {} end
return {meta[1], meta[2], redis.call('GET', KEYS[2]) or ''}
