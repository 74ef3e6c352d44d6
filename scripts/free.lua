-- free.lua: the part of acquire.lua for a lock that is free, for a writer where the write hold has expired, and for a
-- reader where only readers hold it: returns if it has granted the lock. What it leaves is for the parts behind it.
--
-- KEYS   as in lock.lua
-- ARGV   as in acquire.lua
-- Reply  granted, as in acquire.lua
-- Twice  the second call finds the hold, and leaves it to acquire.lua
-- Cost   HSET, and PEXPIRE if the key needs its hour; for a reader ZADD PEXPIRE more, for the first shared hold HSET
--        more
-- Free, or only read: there is nothing to purge and no waiter to admit. If the number of readers is a multiple of 64,
-- the next reader takes the long path and purges expired ones, so that no more than that pile up while only readers
-- come.
local readers = h[2] and mode == 'r' and not owner and string.match(h[2], '^(%d+) 0 0$')
-- A lock whose key has got its hour within these hundred seconds was written by these scripts. There a counter that is
-- behind the clock need not be read: its text is less than that of the clock.
local hundred, t = string.sub(usText, 1, 8), nil
local kept = w and string.sub(w, 17, 24) == hundred
if kept and #w == 24 and not several and w < usText then
  t = 0
elseif w and (#w == 24 or #w == 40) and (kept or string.find(w, '^%d+$'))
  or left and left <= 0 and mode == 'w' and string.find(w, '^[0246]', 64) -- without marks, and nothing in e
    and string.find(w, '%D') > 29 then -- else it is from another program, and lock.lua says so
  t = tonumber(string.sub(w, 1, 16))
end
if (t or not w) and not (own or ARGV[6]) and (not h[2] or readers and readers % 64 > 0)
  and (mode == 'w' or KEYS[2] ~= lock) then
  local last, tw = t, nil
  if several and mode == 'r' then
    tw = w and (#w == 40 and string.sub(w, 25, 40) or string.sub(w, 1, 16)) or '0000000000000000'
    last = tw + 0
    if last == 0 then last = nil end
  end
  local block = mode == 'w' and tokens
  -- include: mint.lua
  -- Formatting a float takes a tenth of the whole script, and concatenation a third of the time of a format.
  local format, sub = string.format, string.sub
  local token = v == us and usText or v == floor and floorText or format('%016.0f', v)
  local life, lost, fresh = ttl > 3700000 and ARGV[3] or '3700000', false, not kept or ttl > 3000000
  if mode == 'w' then
    local lasts = #ARGV[3] == 8 and ARGV[3] or format('%8d', ttl)
    local d, e, flag = details, nil, owner and 8 or first and 4 or 0
    if #details > 64 then d, e, flag = sub(details, 1, 64), sub(details, 65), flag + 1 end
    local w = token .. sub(usText, 1, 13) .. id .. lasts .. flag
    if owner then
      call('HSET', lock, 'w', w, 'd', d, e and 'e' or 'd', e or d, 'm', 'n - -', 'o:' .. owner, '1 ' .. token .. ' w 1')
    elseif first then
      call('HSET', lock, 'w', w, 'd', d, e and 'e' or 'd', e or d, 'f', format('%016.0f', first))
    else
      -- include: take.lua
    end
  else
    local expiry, now = ms + ttl, sub(usText, 1, 13)
    local expiryText = format('%d%05d', math.floor(expiry / 100000), expiry % 100000)
    local holds = lock .. ':h'
    call('ZADD', holds, expiryText, id)
    if not readers then
      call('PEXPIRE', holds, life)
    elseif call('PEXPIRE', holds, life, 'GT') == 0 then
      lost = call('PEXPIRE', holds, life, 'NX') == 1 -- the key is new, and the other readers are missing in it
    end
    if not lost then
      local largest = t and t > v and sub(w, 1, 16) or token
      local free, n = largest .. hundred, readers and format('%d 0 0', readers + 1) or '1 0 0'
      if tw and tw ~= largest then free = free .. tw end
      call('HSET', lock, 'w', free, 'n', n, id, 'g ' .. expiryText .. ' ' .. token .. ' ' .. now .. ' ' .. details)
      if tokens and not h.c then call('HSET', lock, 'c', '0') end
    end
  end
  if not lost then
    if owner and mode == 'r' then call('HSET', lock, 'o:' .. owner, '1 ' .. token .. ' r 1') end
    if fresh and readers then
      call('PEXPIRE', lock, life, 'GT')
    elseif fresh then
      call('PEXPIRE', lock, life)
    end
    if token == usText and mode == 'w' and not first then return us end
    local granted = '1 ' .. token .. ' ' .. ARGV[3] .. ' ' .. usText
    return first and granted .. format(' %.0f', first) or granted
  end
  call('ZREM', lock .. ':h', id) -- the path below rebuilds the key
end
