-- Takes, keeps or gives back the right to work on a generation. KEYS[1] it, ARGV[1] who, ARGV[2] for how many ms (0: give it back).
-- Answers 1, or 0 where somebody else has it.

local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then
  return 0
end
if tonumber(ARGV[2]) > 0 then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
elseif holder then
  redis.call('DEL', KEYS[1])
end
return 1
