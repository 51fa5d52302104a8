-- Adds to an owner's counts of this day (UTC, by the server's clock), unless one of them has reached its limit.
-- KEYS[1]: the counts. ARGV[1]: the day to add to, '' for today; then for each kind its name, the units to add (below zero:
-- taken back) and its limit (0: none).
-- Returns whether the units were added, today, seconds until it ends, and what each kind stands at, as text.
local time = redis.call('TIME')
local now = tonumber(time[1])
local today = math.floor(now / 86400)
local kept = tonumber(redis.call('HGET', KEYS[1], 'day')) == today
local added = ARGV[1] == '' or tonumber(ARGV[1]) == today
local change, used = false, {}
for i = 2, #ARGV, 3 do
  local units, limit = tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
  local count = kept and tonumber(redis.call('HGET', KEYS[1], ARGV[i])) or 0
  used[#used + 1] = count
  if units ~= 0 then change = true end
  if limit > 0 and count >= limit then added = false end
end
if added and change then
  if not kept then redis.call('DEL', KEYS[1]) end
  redis.call('HSET', KEYS[1], 'day', today)
  for i = 2, #ARGV, 3 do
    local place = (i + 1) / 3
    used[place] = math.max(0, used[place] + tonumber(ARGV[i + 1]))
    redis.call('HSET', KEYS[1], ARGV[i], string.format('%.17g', used[place]))
  end
  redis.call('EXPIRE', KEYS[1], 172800)
end
local answer = {added and 1 or 0, today, 86400 - now % 86400}
for i = 1, #used do answer[i + 3] = string.format('%.17g', used[i]) end
return answer
