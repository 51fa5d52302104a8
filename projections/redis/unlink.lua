-- Deletes keys of a partition that nobody owns: KEYS[1] is its state, the others go. Answers how many went, or -1 when the state is there
-- (again): then somebody has taken the partition over, and the keys are his.
if redis.call('EXISTS', KEYS[1]) == 1 then
  return -1
end
local gone = 0
for i = 2, #KEYS do
  gone = gone + redis.call('UNLINK', KEYS[i])
end
return gone
