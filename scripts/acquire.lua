-- acquire.lua: takes the lock for a hold, or queues the hold.
--
-- KEYS   as in lock.lua
-- ARGV   1 as in vote.lua, 2 hold, 3 TTL ms, 4 order: '0' do not queue, 'a' queue by arrival, 'h' queue by hold id,
--        5 details; then of an adoption, which is not queued: 6 the token of the hold that it converts, 7 the secret
--        whose hash is that hold's mark
-- Reply  granted  {1, token, ms left, server us}, and the first token of its block if it has one
--        an upgrade, and another reader's waits already, or an adoption, and another stands {7, 0, 0, server us}
--        queued   {0, 0, ms until something may expire, server us, and of the holder: hold, ms left, ms held, details}
--        refused  {2, ...as queued}, released before its acquire arrived, or the hold that it adopts does not stand
--        with that token, mode and mark {3, 0, 0, server us}, broken, or the hold that it converts is,
--        {3, 0, 0, server us, who and why}, 4 and 5 as in vote.lua
-- Twice  a granted hold gets its token and the time left of it; a queued hold is refreshed in its place, or gets 7 if
--        it was sidelined and another upgrade has arrived before it; an adoption that has ended leaves no hold to adopt
--        where it has succeeded, and may stand again where not
-- Cost   free: HMGET TIME HSET PEXPIRE; for a reader ZADD PEXPIRE more, for the first shared hold HSET more; behind a
--        writer: HMGETx2 TIME, to queue there ZADD PEXPIRE HSET PEXPIRE more; the first in the queue behind a shared
--        hold: PUBLISH more, or wantAll of settle.lua if it reads; to queue by hold id: PUBLISH more, or behind readers
--        ZRANGE, and HGET and PUBLISH for 16 at most; a conversion while other holds stand: HGET, and ZRANGE HGET if
--        its own hold is the first to expire; an adoption: HGETx2 ZADD PEXPIRE HSET, or for a reader ZSCORE more; else
--        as in lock.lua and settle.lua, for a single attempt with 1,024 for the bound of what is dead, and for a writer
--        HMGET more
local call, lock, id, order, details = redis.call, KEYS[1], ARGV[2], ARGV[4], ARGV[5]
local mode, h, own = string.sub(details, 1, 1), nil, nil
if mode == 'w' then -- without n there is neither a record of this hold nor c, so a writer reads both later
  h = ARGV[1] == '0' and call('HMGET', lock, 'w', 'n', 't') or call('HMGET', lock, 'w', 'n', 't', 'tw')
elseif ARGV[1] == '0' then
  h = call('HMGET', lock, 'w', 'n', 't', id, 'c')
  own, h.c, h[4] = h[4], h[5], nil
else
  h = call('HMGET', lock, 'w', 'n', 't', 'tw', id, 'c')
  own, h.c = h[5], h[6]
end
-- include: vote.lua
if refusal then return refusal end

local ttl = ARGV[3] + 0
local owner, block
if string.byte(details, string.find(details, ' ', 3, true) + 1) ~= 45 then -- '-': the hold's id
  owner = string.match(details, '^%a %d+ (%w+)')
  if owner == id then owner = nil end
  block = string.match(details, '^%a %d+ %+(%d+)')
end

-- Free, or only read: there is nothing to purge and no waiter to admit. If the number of readers is a multiple of 64,
-- the next reader takes the long path and purges expired ones, so that no more than that pile up while only readers
-- come.
local readers = h[2] and mode == 'r' and not owner and string.match(h[2], '^(%d+) 0 0$')
if not (h[1] or own or ARGV[6]) and (not h[2] or readers and readers % 64 > 0)
  and (mode == 'w' or KEYS[2] ~= lock) then
  local last = h[3]
  if several and mode == 'r' then last = h[4] end
  local v = last and last + 1 or us
  if v < floor then v = floor end
  local first
  if block and mode == 'w' then first, v = v, math.max(math.min(v + block - 1, us + 1000000), v) end -- as in mint
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
    if several and e then
      call('HSET', lock, 't', token, 'tw', token, 'w', w, 'd', d, 'e', e)
    elseif several then
      call('HSET', lock, 't', token, 'tw', token, 'w', w, 'd', d)
    elseif e then
      call('HSET', lock, 't', token, 'w', w, 'd', d, 'e', e)
    else
      call('HSET', lock, 't', token, 'w', w, 'd', d)
    end
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
      if block and not h.c then call('HSET', lock, 'c', '0') end
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

-- While another write hold stands no hold can enter, so the script looks at nothing else, unless aside has members:
-- every acquire purges those. A conversion takes the long path: it may enter, and an upgrade goes to the head of the
-- queue.
local from = string.find(details, '^', 3, true) and string.match(details, '^%a %d+ [^ ^]*%^(%w+)')
local holder, expiry, since = string.match(not own and h[1] or '', '^(%S+) (%d+) (%d+)')
local quiet = string.sub(h[2] or ' 0', -2) == ' 0' and (KEYS[2] ~= lock or order == '0')
local behind = holder and holder ~= id and not from and expiry - ms > 0 and order ~= 'h' and quiet
local has = behind and call('HMGET', lock, 'd', 'e', 's', id)
if has and not has[4] then
  local text = (has[1] or '') .. (has[2] or '')
  if order == 'a' then
    local format, lease = string.format, ms + string.match(details, '^%a (%d+)')
    local place = format('%d', (has[3] or 0) + 1)
    local queue = lock .. ':q'
    call('ZADD', queue, place, id)
    call('PEXPIRE', queue, '3600000')
    local now = clock[1] .. format('%03d', ms % 1000)
    local leaseText = format('%d%05d', math.floor(lease / 100000), lease % 100000)
    local joined, queued, aside = string.match(h[2] or '0 0 0', '^(%d+) (%d+) (%d+)$')
    local n = format('%s %d %s', joined, queued + 1, aside)
    call('HSET', lock, 'n', n, 's', place, id, 'q ' .. leaseText .. ' ' .. place .. ' ' .. now .. ' ' .. details)
    call('PEXPIRE', lock, '3600000', 'GT')
    local letter, channel
    if queued == '0' then letter, channel = string.match(text, '^%a %d+ %+%S+ (%a)(%S+)') end -- of a shared hold
    if letter then redis.pcall(letter == 's' and 'SPUBLISH' or 'PUBLISH', channel, holder .. ' wanted') end
  end
  local left, status, usText = expiry - ms, order == 'a' and '0' or '2', clock[1] .. string.format('%06d', clock[2])
  return string.format('%s 0 %d %s %s %d %d ', status, left, usText, holder, left, ms - since) .. text
end
if mode == 'w' and h[2] then
  has = call('HMGET', lock, id, 'c')
  own, h.c = has[1], has[2]
end

-- include: process.lua
-- include: settle.lua

-- Returns a hold that is in the way of a conversion: hold, expiry, since, details. The hold that it converts is not in
-- the way, nor are holds whose releases are on their way: the hold from which that one was converted, and earlier
-- attempts at this conversion, which were given up.
local function inTheWay()
  local before
  if wHold and (wHold ~= from or readers > 0) then
    local _, _, _, _, its = parse(wHold ~= from and recordOf(from))
    before = converted(its or wHold == from and writerDetails() or '')
    if wHold ~= from and wHold ~= before and converted(writerDetails()) ~= from then
      return { wHold, wExpiry, wSince, writerDetails() }
    end
  end
  local seen, other = { firstHold, firstExpiry }, nil -- the first one is mostly enough
  for _ = 1, 2 do
    local known = 0
    for i = 1, #seen, 2 do
      local state, _, _, since, text = parse(recordOf(seen[i]))
      if state == 'g' then
        known, other = known + 1, { seen[i], tonumber(seen[i + 1]), since, text }
        if seen[i] ~= from and seen[i] ~= before and converted(text) ~= from then return other end
      end
    end
    if known == readers then return nil end
    seen = call('ZRANGE', holdsKey, 0, bound - 1, 'WITHSCORES')
  end
  return other -- too many to look at all of them
end

local other -- the hold in the way of a conversion

local function waiting(status)
  local hold, expiry, since, text = wHold, wExpiry, wSince, wHold and writerDetails()
  if from then
    hold, expiry, since, text = unpack(other or {}, 1, 4)
  elseif not hold and firstHold then
    hold, expiry = firstHold, firstExpiry
    local _
    _, _, _, since, text = parse(recordOf(hold))
  end
  if not text then return { status, 0, wake(), us, '', 0, 0, '' } end
  return { status, 0, wake(), us, hold, expiry - ms, ms - since, text }
end

-- Asks the holders to yield. A holder that has no quorum yields to this hold if this hold is older or upgrades. The
-- holder's process knows whether it has a quorum. A process that misses the message asks at its next refresh.
local function nudge()
  local function yields(other) return other > id or from and other ~= from end
  if wHold then
    if yields(wHold) then tell(writerDetails(), wHold) end
    return
  end
  for _, other in ipairs(call('ZRANGE', holdsKey, 0, 15)) do
    local _, _, _, _, text = parse(yields(other) and recordOf(other))
    if text then tell(text, other) end
  end
end

-- Adopts a hold that its client has detached for another client to go on with: this one is granted beside it, with a
-- larger token, and the adopter then releases the detached one. That is compatible with all that stands: it is in the
-- mode of the detached hold, which stands. The details of the detached hold name the adopter, so that only one can
-- stand. An adopter that has died makes room when it expires.
local function adopt()
  local state, expiry, token, since, details = find(from)
  if state == 'x' and expiry > ms then return { 3, 0, 0, us, details ~= '-' and details or nil } end
  local stands = (state == 'w' or state == 'g') and expiry > ms and string.sub(details, 1, 1) == mode
  if not stands or token ~= 0 and token ~= ARGV[6] + 0 then return { 3, 0, 0, us } end
  if token == 0 then return { 3, 0, 0, us, brokenBy(from) } end
  if match(details, '^%a %d+ [^ #]+#(%x+)') ~= redis.sha1hex(ARGV[7] or '') then return { 3, 0, 0, us } end
  local other, its, bound = match(details, '^%a %d+ %S+ @(%w+)'), nil, nil
  if other then its, bound = find(other) end
  if (its == 'w' or its == 'g') and bound > ms then return { 7, 0, 0, us } end
  if not reachable(holdsKey, readers) then return redis.error_reply(moving) end
  floor = math.max(floor, token + 1) -- of several masters, mint need not pass the token of a reader
  now = since -- a minimum counts from the first grant
  local larger = mint(ARGV[5])
  grant(id, larger, ttl, ARGV[5])
  details = string.gsub(details, '^(%a %d+ %S+) %S+', '%1 @' .. id)
  if state == 'w' then
    wDetails, fields.d = details, string.sub(details, 1, 64)
    fields.e = #details > 64 and string.sub(details, 65)
  else
    fields[from] = match(recordOf(from), '^g %d+ ') .. int(token) .. ' ' .. since .. ' ' .. details
  end
  return { 1, larger, ttl, us }
end

had[id] = own
local state, place, asked, _
state, expiry, place, since, asked = find(id)
if isWaiter(state) then await(id, state, place, since, asked) end
if order == '0' then deadBound = 1024 end -- nothing continues for a single attempt, so what is dead may not refuse it
purge()
admit()
local token
state, expiry, token, _, asked = find(id) -- after purge, which leaves a tombstone of a broken hold
if state == 'x' and expiry > ms then
  store()
  return { 3, 0, 0, us, asked ~= '-' and asked or nil }
end
if (state == 'w' or state == 'g') and expiry > ms then
  store()
  if token == 0 then return { 3, 0, 0, us, brokenBy(id) } end
  return { 1, token, expiry - ms, us, state == 'w' and wFirst or nil }
end
if from and not ARGV[6] then other = inTheWay() end
if isWaiter(state) then
  store(0)
  return waiting(0)
end
if state then drop(id, state, asked) end -- expired, and purge reached its bound before it
if ARGV[6] then
  local reply = adopt()
  store(reply[1] == 1 and ttl)
  return reply
end

local enters = not wHold and (mode == 'r' or readers == 0)
if from then
  enters = enters or not other and (mode == 'w' and wHold ~= from or mode == 'r' and wHold == from)
  if not enters and mode == 'w' and headPlace == 0 and isRival(headHold, from) then
    store()
    return { 7, 0, 0, us }
  end
elseif enters and queued > 0 then
  enters = order == 'h' and headHold and headPlace > 0 and id < headHold
end
local makes, members = queueKey, queued
if enters then makes, members = holdsKey, readers end
if (enters and mode == 'r' or not enters and order ~= '0') and not reachable(makes, members) then
  store()
  return redis.error_reply(moving)
end
if enters and from and (wHold == from and wToken == 0 or match(recordOf(from) or '', '^g %d+ 0 ')) then
  store()
  return { 3, 0, 0, us, brokenBy(from) }
end
if enters then
  local first
  local told = fields.c or h.c
  token, first = mint(details)
  grant(id, token, ttl, details, first)
  if queued > 0 and not (from and mode == 'r') then -- a downgrade is notified when the write hold is released
    want(id, details)
    if told and fields.c then fields.c = told end -- the other readers have been notified before
  end
  store(ttl)
  return { 1, token, ttl, us, first }
end
if order == '0' then
  store()
  return waiting(2)
end
local at = 1 -- order 'h': by hold id
if from then at = 0 elseif order == 'a' then at = call('HINCRBY', lock, 's', 1) end
enqueue(id, at, details)
if order == 'h' then nudge() end
if not wHold then
  wantAll()
elseif queued == 1 then -- the first waiter asks for the lock
  want(wHold, writerDetails())
end
store(0)
return waiting(0)
