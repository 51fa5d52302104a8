-- Figures of the last hour in a ring: slot n of the time (by the server's clock) is the field n % slots, 'n value value …'.
-- KEYS[1]: the ring. ARGV[1]: seconds of a slot; ARGV[2]: slots; ARGV[3]: what to do, then what it takes:
--   add, values…: adds to this slot's values.
--   claim: returns this slot and the state that the last one left, to the first who asks in this slot; nothing to others.
--   put, slot, state, values…: keeps a slot's values ('-': unknown), and a state for the next one.
--   read: returns the time as text, and fields and values, one after the other.
local time = redis.call('TIME')
local every, slots = tonumber(ARGV[1]), tonumber(ARGV[2])
local slot = math.floor(tonumber(time[1]) / every)
local function keep(at, values)
  redis.call('HSET', KEYS[1], at % slots, at .. ' ' .. table.concat(values, ' '))
  redis.call('EXPIRE', KEYS[1], every * (slots + 1))
end
if ARGV[3] == 'add' then
  local values, i = {}, 0
  for one in string.gmatch(redis.call('HGET', KEYS[1], slot % slots) or '', '%S+') do
    if i == 0 and tonumber(one) ~= slot then break end
    if i > 0 then values[i] = tonumber(one) end
    i = i + 1
  end
  for n = 4, #ARGV do
    values[n - 3] = string.format('%.17g', (values[n - 3] or 0) + tonumber(ARGV[n]))
  end
  keep(slot, values)
  return {}
elseif ARGV[3] == 'claim' then
  if (tonumber(redis.call('HGET', KEYS[1], 'claimed') or '') or -1) >= slot then return {} end
  redis.call('HSET', KEYS[1], 'claimed', slot)
  redis.call('EXPIRE', KEYS[1], every * (slots + 1))
  return {slot, redis.call('HGET', KEYS[1], 'state') or ''}
elseif ARGV[3] == 'put' then
  redis.call('HSET', KEYS[1], 'state', ARGV[5])
  keep(tonumber(ARGV[4]), {unpack(ARGV, 6)})
  return {}
end
return {time[1] .. '.' .. string.format('%06d', time[2]), unpack(redis.call('HGETALL', KEYS[1]))}
