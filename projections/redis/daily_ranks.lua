-- Adds what one of many used to the totals of this day (UTC, by the server's clock) and to its own count among them.
-- KEYS[1]: the totals; then for each kind the counts of all. ARGV[1]: the day to add to, '' for today; ARGV[2]: whose, '' to read only;
-- ARGV[3]: of how many the counts are returned, most of the first kind first; then for each kind its name and the units to add.
-- Returns whether the units were added, today, each kind's total, and then a name and its count of each kind, all counts as text.
local today = math.floor(tonumber(redis.call('TIME')[1]) / 86400)
local kinds, added = #KEYS - 1, 0
local kept = tonumber(redis.call('HGET', KEYS[1], 'day')) == today
if ARGV[2] ~= '' and (ARGV[1] == '' or tonumber(ARGV[1]) == today) then
  if not kept then redis.call('DEL', unpack(KEYS)) end
  redis.call('HSET', KEYS[1], 'day', today)
  for i = 1, kinds do
    redis.call('HINCRBYFLOAT', KEYS[1], ARGV[2 + 2 * i], ARGV[3 + 2 * i])
    redis.call('ZINCRBY', KEYS[1 + i], ARGV[3 + 2 * i], ARGV[2])
  end
  for _, name in ipairs(KEYS) do redis.call('EXPIRE', name, 172800) end
  kept, added = true, 1
end
local answer, most = {added, today}, {}
for i = 1, kinds do
  answer[2 + i] = kept and redis.call('HGET', KEYS[1], ARGV[2 + 2 * i]) or '0'
end
if kept and tonumber(ARGV[3]) > 0 then
  most = redis.call('ZREVRANGE', KEYS[2], 0, tonumber(ARGV[3]) - 1)
end
for _, name in ipairs(most) do
  answer[#answer + 1] = name
  for i = 1, kinds do
    answer[#answer + 1] = redis.call('ZSCORE', KEYS[1 + i], name) or '0'
  end
end
return answer
