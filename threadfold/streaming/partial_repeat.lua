-- Notes how much of an ended text was said again.
--
-- KEYS ended. ARGV the entry as it is, and as it is to be. Answers 1, or 0 if another request was quicker, or the entry is gone.

if redis.call('LINSERT', KEYS[1], 'BEFORE', ARGV[1], ARGV[2]) < 1 then return 0 end
return redis.call('LREM', KEYS[1], 1, ARGV[1])
