-- renew.lua: sets a new expiry for granted holds. It never creates a hold, and two renewals do not add up.
--
-- KEYS   lock of every lease; then marker where there are several masters; in a Cluster as in lock.lua, of one lease
-- ARGV   1 as in vote.lua, 2 TTL ms, 3 what all leases are: 'r' read holds, 's' write holds that learn of waiters, 'w'
--        other write holds; behind the letter also '#' and the mark of the leases: see lock.lua; then for every lease:
--        hold, token
-- Reply  {server us, how many leases are just renewed, until server's now + TTL, then of each other lease its number,
--        from 1, and: 2 renewed, and a hold waits (not for 'w'); 0 not held here with that token, or expired; a text in
--        place of 0: who broke it and why}; {server us}: nothing was done, as the client has to read the marker first
-- Twice  the expiry is set from the server's clock, not summed, and a hold always gets the same mark
-- Cost   TIME, and per lease of a writer HGET and HSET, for 's' HGET more if a hold may wait, of a reader HMGET ZSCORE
--        ZADD; PEXPIRE, twice for a reader, a named owner, with the first lease of a call and once in 100 s; for a
--        reader also HSET the first time and once a minute; with a mark HMGET for a writer, HSET for a reader; for a
--        writer that is not w as for a reader, and HMGET; works while Redis is out of memory, and while this master
--        abstains: it extends standing holds, and admits no hold
local call, pcall, ARGV, KEYS, vote = redis.call, redis.pcall, ARGV, KEYS, ARGV[1]
-- include: vote.lua
local match, find, cut, byte = string.match, string.find, string.sub, string.byte
if changed then return { us } end
local reply, renewed, ttl, kind = { us, 0 }, 0, ARGV[2] + 0, cut(ARGV[3], 1, 1)
local life
-- include: life.lua
local new, mark = ms + ttl, #ARGV[3] > 1 and '%1' .. cut(ARGV[3], 2)
local kept, minute = false, nil -- of the new expiry, once a key has been kept
local hundred = ttl < 3000000 and cut(usText, 1, 8) or '9' -- see life.lua
local now, lasts = cut(usText, 1, 13), #ARGV[2] == 8 and ARGV[2] or string.format('%8d', ttl)
-- Leases that were renewed in one call are mostly renewed together again. So the common case is a write hold that was
-- last renewed when an earlier one of this call was, with the same TTL: one text is compared.
local plain, same, fresh = mark and '-' or lasts .. '2', now, false -- fresh: in these hundred seconds

local newText

local function int(n) return string.format('%d%05d', math.floor(n / 100000), n % 100000) end -- as in lock.lua

-- The first write of the script: accepted when memory is full, and so are the commands after it.
local function keep(lock, zset)
  call('PEXPIRE', lock, life, 'GT')
  if zset then pcall('PEXPIRE', lock .. ':h', life, 'GT') end -- fails while the zset migrates, with an hour left
  minute, kept = ttl < 3000000 and new - new % 60000, true
end

-- Renews a hold that has a record. Returns whether it has, or an error.
local function renew(lock, id, token, own)
  local known, its = match(own, '^g (%d+) (%d+)')
  if its ~= token then return false end
  local holds = lock .. ':h'
  local score = pcall('ZSCORE', holds, id)
  if KEYS[2] == lock and not ARGV[6] and type(score) ~= 'string' then
    return redis.error_reply('TRYAGAIN the keys of this lock are on their way to another node')
  end
  -- Without a score the zset was lost. No other hold has entered, since the record stands, and the hold is not known to
  -- have expired before the time in it. The next script that looks at holds rebuilds it from the records.
  local expiry = score or known
  if type(expiry) ~= 'string' or expiry - ms <= 0 then return false end
  if expiry - expiry % 60000 ~= minute then keep(lock, true) end
  newText = newText or int(new)
  if score then call('ZADD', holds, newText, id) end
  if known - new < 0 or mark then -- with some time added, so that not every renewal writes this
    local rest = cut(own, #known + 3)
    if mark then rest = string.gsub(rest, '^( %d+ %d+ %a %d+ [^ #]+)%S*', mark) end
    if known - new < 0 then known = int(ttl < 3000000 and new + 60000 or new) end
    call('HSET', lock, id, 'g ' .. known .. rest)
  end
  return true
end

for i = 1, (#ARGV - 3) / 2 do
  local lock, id, token = KEYS[i], ARGV[2 * i + 2], ARGV[2 * i + 3]
  local w, n, own, ok
  if kind ~= 'r' then w = pcall('HGET', lock, 'w') end -- a table if it fails
  if w and w == token .. same .. id .. plain then
    if not fresh then keep(lock, false) end
    call('HSET', lock, 'w', token .. now .. id .. plain)
    ok = true
  elseif w and #w == 64 and find(w, id, 30, true) == 30 and (find(w, '%D') or 64) > 29
    and find(w, '^ *%d+[%da-v]$', 56) then
    local its, flag, before = cut(w, 1, 16), tonumber(cut(w, 64), 32), cut(w, 17, 29)
    if flag > 15 and kind == 's' then n = call('HGET', lock, 'n') end
    if flag % 16 > 7 then -- its own token, if another one is the largest
      local own = match(call('HGET', lock, 'm') or '', '^. (%d+)')
      its = own or its
    end
    if its == token and before + cut(w, 56, 63) > ms then
      if before + ttl > ms then same, fresh = before, before >= hundred end
      -- Joined holds, if any, must be there to be purged.
      if not kept or before < hundred then keep(lock, flag % 16 > 7) end
      local since = flag % 4 < 2 -- else it is in b
      if since then flag = flag + 2 end
      if mark then
        local parts = call('HMGET', lock, 'd', 'e')
        local details = (parts[1] or 'w 0 - @') .. (flag % 2 == 1 and parts[2] or '') -- as in lock.lua
        details = string.gsub(details, '^(%a %d+ [^ #]+)%S*', mark)
        local d, e = cut(details, 1, 64), #details > 64 and cut(details, 65)
        flag = flag - flag % 2 + (e and 1 or 0)
        call('HSET', lock, 'd', d, e and 'e' or 'd', e or d)
      end
      if flag > 9 then flag = string.char(87 + flag) end
      if since then
        call('HSET', lock, 'w', cut(w, 1, 16) .. now .. id .. lasts .. flag, 'b', before)
      else
        call('HSET', lock, 'w', cut(w, 1, 16) .. now .. id .. lasts .. flag)
      end
      ok = true
    end
  else
    local h = type(w) == 'table' and w or pcall('HMGET', lock, id, 'n')
    -- If a key holds another type, that lease alone is gone. Any other error is the error of the whole call.
    if h.err and not find(h.err, 'WRONGTYPE', 1, true) then return h end
    own, n = h[1], kind ~= 'w' and h[2]
    ok = own and renew(lock, id, token, own)
    if type(ok) == 'table' then return ok end
  end
  if ok and not (n and find(n, '^%d+ [1-9]')) then
    renewed = renewed + 1
  else
    local status = ok and 2 or 0
    if not ok then -- only now, so that it costs a renewal nothing
      local its = own and byte(own) == 120 and own or pcall('HGET', lock, 'b:' .. id) -- 'x'
      local expiry, who = match(type(its) == 'string' and its or '', '^x (%d+) %d+ %d+ (%d+:.*)$')
      if expiry and expiry - ms > 0 then status = who end
    end
    reply[#reply + 1] = i
    reply[#reply + 1] = status
  end
end
reply[2] = renewed
return reply
