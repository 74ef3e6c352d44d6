-- free.lua: the part of acquire.lua for a lock that is free, and for a reader where only readers hold it: returns if it
-- has granted the lock. What it leaves is for the parts behind it.
--
-- KEYS   as in lock.lua
-- ARGV   as in acquire.lua
-- Reply  granted, as in acquire.lua
-- Twice  the second call finds the hold, and leaves it to acquire.lua
-- Cost   HSET PEXPIRE; for a reader ZADD PEXPIRE more, for the first shared hold HSET more
-- Free, or only read: there is nothing to purge and no waiter to admit. If the number of readers is a multiple of 64,
-- the next reader takes the long path and purges expired ones, so that no more than that pile up while only readers
-- come.
local readers = h[2] and mode == 'r' and not owner and string.match(h[2], '^(%d+) 0 0$')
if not (h[1] or own or ARGV[6]) and (not h[2] or readers and readers % 64 > 0)
  and (mode == 'w' or KEYS[2] ~= lock) then
  local last = h[3]
  if several and mode == 'r' then last = h[4] end
  local block = mode == 'w' and tokens
  -- include: mint.lua
  -- Formatting a float takes a tenth of the whole script, so %d formats parts that fit into a long of 32 bits.
  -- Concatenation takes a third of the time of a format.
  local format, expiry = string.format, ms + ttl
  local usText = #clock[2] == 6 and clock[1] .. clock[2] or format('%s%06d', clock[1], clock[2])
  local token, now = v == us and usText or v == floor and floorText or format('%.0f', v), string.sub(usText, 1, -4)
  local expiryText = format('%d%05d', math.floor(expiry / 100000), expiry % 100000)
  local life, lost = ttl > 3600000 and ARGV[3] or '3600000', false
  if mode == 'w' then
    local w = id .. ' ' .. expiryText .. ' ' .. now
    if owner then w = w .. ' n' elseif first then w = w .. format(' %.0f', first) end
    local d, e = details, nil
    if #details > 64 then d, e = string.sub(details, 1, 64), string.sub(details, 65) end
    -- include: take.lua
  else
    local holds = lock .. ':h'
    call('ZADD', holds, expiryText, id)
    if not readers then
      call('PEXPIRE', holds, life)
    elseif call('PEXPIRE', holds, life, 'GT') == 0 then
      lost = call('PEXPIRE', holds, life, 'NX') == 1 -- the key is new, and the other readers are missing in it
    end
    if not lost then
      local t = h[3] and h[3] - v > 0 and h[3] or token
      local n = format('%d 0 0', (readers or 0) + 1)
      call('HSET', lock, 't', t, 'n', n, id, 'g ' .. expiryText .. ' ' .. token .. ' ' .. now .. ' ' .. details)
      if tokens and not h.c then call('HSET', lock, 'c', '0') end
    end
  end
  if not lost then
    if owner then call('HSET', lock, 'o:' .. owner, '1 ' .. token .. ' ' .. mode .. ' 1') end
    if readers then call('PEXPIRE', lock, life, 'GT') else call('PEXPIRE', lock, life) end
    local granted = '1 ' .. token .. ' ' .. ARGV[3] .. ' ' .. usText
    return first and granted .. format(' %.0f', first) or granted
  end
  call('ZREM', lock .. ':h', id) -- the path below rebuilds the key
end
