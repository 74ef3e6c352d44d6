-- free.lua: the part of acquire.lua for a lock that is free, for a writer where the write hold has expired, and for a
-- reader where only readers hold it: returns if it has granted the lock. What it leaves is for the parts behind it.
--
-- KEYS   as in lock.lua
-- ARGV   as in acquire.lua
-- Reply  granted, as in acquire.lua
-- Twice  the second call finds the hold, and leaves it to acquire.lua
-- Cost   HSET, and PEXPIRE if the key needs its hour; for a reader ZADD PEXPIRE more, for the first shared hold HSET
--        more; for a named owner's first write HGET more, and HDEL HGET where field w was missing alone
-- Free, or only read: there is nothing to purge and no waiter to admit. If the number of readers is a multiple of 64,
-- the next reader takes the long path and purges expired ones, so that no more than that pile up while only readers
-- come.
local readers = n and mode == 'r' and kind ~= 110 and match(n, '^(%d+) 0 0$')
-- A lock whose key has got its hour within these hundred seconds was written by these scripts. There a counter that is
-- behind the floor need not be read: its text is less than that of the floor.
local hundred, now, t = sub(usText, 1, 8), sub(usText, 1, 13), nil
local kept = w and size > 23 and find(w, hundred, 17, true) == 17
if kept and size == 24 and w < floorText and (mode == 'w' or not several) then
  t = 0
elseif (size == 24 or size == 40) and (kept or find(w, '^%d+n?$'))
  or left and left <= 0 and mode == 'w' and find(w, '^[0246]', 64) -- without marks, and nothing in e
    and (find(w, '%D') or 64) > 29 and find(w, '^ *%d+$', 56) then -- else lock.lua says that it is malformed
  t = tonumber(sub(w, 1, 16))
end
local others = not w and mode == 'w' and kind > 55 and call('HGET', lock, 'n') -- of a named owner; the rest see below
if (t or not w) and not (own or others or ARGV[5]) and (not n or readers and readers % 64 > 0)
  and (mode == 'w' or KEYS[2] ~= lock) then
  local last, tw, block = t, nil, nil
  if several and mode == 'r' then
    tw = w and (size == 40 and sub(w, 25, 40) or sub(w, 1, 16)) or '0000000000000000'
    last = tw + 0
    if last == 0 then last = nil end
  elseif kind == 52 or kind == 53 then -- '4', '5'
    block = match(details, '^w %d+ %+(%d+)')
  end
  -- include: mint.lua
  -- Formatting a float takes a tenth of the whole script, and concatenation a third of the time of a format.
  local token, lost, ttl, life = v == floor and floorText or string.format('%016.0f', v), false, nil, nil
  local fresh = not kept or long ~= 32 -- ' ': the TTL is below 1,000 s
  if fresh or mode == 'r' then
    ttl = sub(request, 27, 34) + 0
    -- include: life.lua
  end
  if mode == 'w' then
    local w, d, e = token .. now .. request, details, nil
    if #d > 64 then d, e = sub(details, 1, 64), sub(details, 65) end
    if kind > 55 then -- '8', '9': it has an owner
      local owner = match(details, '^w %d+ (%w+)')
      call('HSET', lock, 'w', w, 'd', d, e and 'e' or 'd', e or d, 'm', 'n - -', 'o:' .. owner, '1 ' .. token .. ' w 1')
    elseif first then
      first = string.format('%016.0f', first)
      call('HSET', lock, 'w', w, 'd', d, e and 'e' or 'd', e or d, 'f', first)
    else
      -- include: take.lua
    end
  else
    local expiry = ms + sub(request, 27, 34)
    local expiryText = string.format('%d%05d', math.floor(expiry / 100000), expiry % 100000)
    local holds = lock .. ':h'
    call('ZADD', holds, expiryText, id)
    if not readers then
      call('PEXPIRE', holds, life)
    elseif call('PEXPIRE', holds, life, 'GT') == 0 then
      lost = call('PEXPIRE', holds, life, 'NX') == 1 -- the key is new, and the other readers are missing in it
    end
    if not lost then
      local largest = t and t > v and sub(w, 1, 16) or token
      local free, n = largest .. hundred .. 'n', readers and string.format('%d 0 0', readers + 1) or '1 0 0'
      if tw and tw ~= largest then free = largest .. hundred .. tw .. 'n' end
      local record = 'g ' .. expiryText .. ' ' .. token .. ' ' .. now .. ' ' .. details
      call('HSET', lock, 'w', free, 'n', n, id, record)
      if kind == 115 and not told then call('HSET', lock, 'c', '0') end -- 's'
      if kind == 110 then call('HSET', lock, 'o:' .. match(details, '^r %d+ (%w+)'), '1 ' .. token .. ' r 1') end
    end
  end
  if not lost then
    if readers then
      call('PEXPIRE', lock, life, 'GT')
    elseif not w and mode == 'w' and kind < 56 then
      -- Without w the lock may still have records, such as a tombstone of before its first grant. Then the key has an
      -- expiry, as all keys that these scripts write, and NX refuses.
      lost = call('PEXPIRE', lock, life, 'NX') == 0
    elseif fresh then
      call('PEXPIRE', lock, life)
    end
    if not lost and token == usText and mode == 'w' and not first then return us end
    if not lost then return token .. ' ' .. usText .. (first and ' ' .. first or '') end
  end
  -- The path below looks at all records, and rebuilds the zset.
  if mode == 'w' then call('HDEL', lock, 'w', 'd', 'e', 'f') else call('ZREM', lock .. ':h', id) end
end
