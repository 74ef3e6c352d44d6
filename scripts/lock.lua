-- lock.lua: the state of one lock on one master, and the functions that change one hold in it. A script includes it
-- after its common case, so that the common case does not pay for these functions.
--
-- KEYS   1 lock   hash: w the largest token of any grant, and the write hold if one stands: see below;
--                 d and e the details of the write hold, e the bytes beyond 64; b its since; f the first token
--                 of its block; m its marks;
--                 n the numbers of records that holds, queue and aside index, absent when there are none; w tells
--                 where there may be n;
--                 s the last place given out; c present if a shared hold reads, or has read: how many of the read
--                 holds, counted from the latest expiry, have been notified that a hold waits;
--                 <hold> 'state expiry token since details' of every other hold: its record; that of a waiter has
--                 the time of its last refresh and its place: 'state refreshed place since details';
--                 o:<owner> 'number', then ' token mode number' for each token and mode that a named owner holds, the
--                 latest last
--        2 holds  zset: read holds, and write holds other than w (purge lists them), by expiry
--        3 queue  zset: waiters by place, 0 for a conversion or a regain; with equal places by hold id
--        4 aside  zset: tombstones and sidelined waiters, by expiry
--        2-4 have the name of the lock and ':h', ':q' and ':x'. A call names them only in a Cluster, since each key
--        costs 1,800 instructions; while the slot migrates there, it names the lock twice: see reachable
--        the last: marker, where there are several masters
-- ARGV   vote, as in vote.lua
-- Reply  each script's own, a list of fields, or a line: the fields in one text with a space between them, of which
--        only the last may have spaces, since a line costs the server a fifth of a list; times and tokens are integers
--        below 2^53
-- Twice  each function that changes a hold names it by its hold id
-- Cost   nothing by itself; grant of a reader: ZADD PEXPIRE; drop: ZREM, for w of a named owner HMGET; for the hold of
--        a named owner HGET; await: for a sidelined waiter ZADD PEXPIRE ZREM, and ZRANGE HGET if it upgrades;
--        requeue: ZADD PEXPIRE for any number of renewed waiters; store: HSET HDEL, and PEXPIRE if a hold was granted
--        or enqueued; restore: HGETALL PEXPIRE, and ZADD per 1,000 records
--
-- States: g granted (its expiry is the score in holds, and the expiry in the record is not before that), q waiting,
-- p sidelined, d waiting although messages do not reach it, x released before its acquire arrived, or broken (a
-- tombstone).
-- A granted hold with token 0 is ended or broken: no renewal names that token, so the hold ends at its expiry. Field
-- b:<hold> is a tombstone for a broken one, and has the token that it had. When the hold expires it becomes a tombstone
-- x, so that no late request brings the hold back. The details of a tombstone say who broke the hold and why, or are
-- '-', or '.' if no more than one acquire of the hold can come: that one removes the tombstone, so that the lock has
-- its common case again.
-- A record and n are in one key, so they always agree. The zsets only index the records, and each of these keys may be
-- gone while the lock stands: expired, evicted, or deleted by an operator. So the records decide:
--   n counts records, never members. A member without a record of its kind has no meaning, and a script that meets it
--   drops it.
--   A zset that has no member left while n counts records for it is rebuilt from all records (restore).
--   holds and aside have all members or none: a script that adds a member looks at the zset first. The queue may lack
--   some members: a script that queues a hold behind a write hold does not look. So each renewal of a waiter writes
--   its member again (await), and if the member was missing the queue is rebuilt (requeue).
-- details: 'mode claim owner route meta', as the client made it.
--   claim is how many ms, an hour at most, a waiter lives without a refresh and a hand-off without a renewal.
--   owner is the name of an owner, or the hold's id. '-' stands for the hold's id. '+B' stands for the hold's id too,
--   and marks a shared hold, which the goroutines of a process share: the process is notified when a hold has to wait,
--   and a write is granted a block of B tokens.
--   A conversion, a hold that replaces another hold of the same client, names that hold behind its owner: '-^hold'. It
--   does not wait for it, and both stand until the old hold is released. So no other hold gets in between, and a
--   client that gives up keeps the old hold. A final '~' is added by the master: the hold has given a grant back, see
--   mint.
--   A hold whose client leaves it to another one has, at the end of its owner, '#' and the hash of a secret that only
--   its ticket has: its mark. It may also have one if its client has tried that in vain.
--   An adoption replaces a hold of another client in the same way as a conversion: a hold that was detached. That hold
--   then has the route '@' and the hold of its adopter, which means nothing once the adopter does not stand.
--   route is a letter (p PUBLISH, s SPUBLISH, b PUBLISH whose count says nothing) and the channel.
--   An ended hold has the token 0 and the route '-'. Its client has released it, and it stands until its minimum: no
--   script renews, raises or joins it, or takes it back. It is not among the holds of its owner.
-- Field w has parts of fixed widths, so that nothing is parsed: positions, then what is there.
--   free     1-16 the largest token, 17-24 the hundred seconds of the clock in which the key was given its hour; and
--            of several masters 25-40 the largest token of a write grant, if that is another one, 0 if there was none;
--            then 'n' if there may be field n
--   held     1-16 the largest token, 17-29 the time of its grant or of its last renewal, 30-55 the hold, 56-63 its TTL
--            from then on, 64 a digit, 0-9 and a-v, the sum of: 1 the details go on in e, 2 since is in b, 4 it has a
--            block, whose first token is in f, 8 its marks are in m, 16 there is field n
-- So a script that meets a free lock, or a hold that nobody waits for, reads w alone: it has no n unless its last
-- character is beyond 'f'. Every script that writes n has to say it in w, or two writers could hold the lock. The last
-- reader leaves that mark behind. Without w there may be n: a tombstone can come before the first grant.
-- Without 2 since is the time of 17-29. Without 8 the owner of the write hold is the hold, its token is the largest
-- one, and so is that of the last write grant. Else m is 'n|- token tw': 'n' if its owner is named; its token if a hold
-- that joined or converts it has a later one, 0 if it is ended or broken; the largest token of a write grant if that is
-- another one; '-' for none. Of d e b f m only what w names has a meaning.
-- A w or n of another form is not from these scripts: the lock is in conflict (malformed), and nothing is changed.
-- Tokens have 16 digits, and times 13; a TTL in w has spaces before it. Times are ms of the server's clock. Samples,
-- with hold ids cut to 4 letters:
--   w        179593902432099717959390
--            1795939024320997179593902432001M8   10000g     its token is the first part, granted for 10 s; n is there
--   d        w 3333 - pfencelock:c:01MA web-1
--   n        2 1 0                                         two records of holds, one waiter, none aside
--   <hold>   g 1795939034320 1795939024320997 1795939024320 r 3333 - pfencelock:c:01MA web-1
--            q 1795939024320 12 1795939024320 w 3333 - pfencelock:c:01MB web-2   place 12
--            x 1795939024820 0 1795939024320 .             a tombstone for one acquire
--   o:<owner> 2 1795939024320997 w 2                       two holds with this token
--   b:<hold> x 1795939034320 1795939024320997 1795939024320 3:ann wrong version
-- With a value over 64 bytes Redis would store the hash as a table, which takes twice the memory.
-- The including script sets call, lock, what vote.lua sets, and h: the fields w, n and, where it is known, c.
local holdsKey, queueKey, asideKey, moves = lock .. ':h', lock .. ':q', lock .. ':x', KEYS[2] == lock
local match, format, sub = string.match, string.format, string.sub
local readers, queued, aside = 0, 0, 0
local t, tw                    -- the largest token of any grant, and of a write grant
local fields = {}              -- what store writes: text, or false for a field to be deleted
local had = {}                 -- records that the script has read
local renewed = {}             -- places and ids of renewed waiters, for requeue
local returned = false         -- whether a sidelined waiter has come back to an empty queue
local alive = {}               -- waiters whose process sent this very script: the reply reports a grant to it
local firstHold, firstExpiry   -- of holds
local headHold, headExpiry, headPlace -- of the queue, if the script has looked at it and the head must wait
local wHold, wExpiry, wSince, wNamed, wFirst, wToken, wDetails -- the write hold
local wRenewed, wTTL, wFlag = nil, nil, -1 -- no write hold
local rewritten = false        -- whether the details are to be written
local granted, kept = false, false -- whether the key needs its hour, and whether the script has given it
local now = sub(usText, 1, 13)

-- Without d no process is known, but the hold still writes.
local function detailsOf(d, e) return d and (wFlag % 2 == 1 and d .. (e or '') or d) or 'w 0 - @' end
if h[2] then
  readers, queued, aside = match(h[2], '^(%d+) (%d+) (%d+)$')
  if not aside then return redis.error_reply(malformed) end
  readers, queued, aside = readers + 0, queued + 0, aside + 0
end
local w = h[1]
if w and #w == 64 then
  t, tw, wHold, wRenewed, wTTL, wFlag = tonumber(sub(w, 1, 16)), nil, sub(w, 30, 55), sub(w, 17, 29), sub(w, 56, 63),
    tonumber(sub(w, 64), 32)
  local lasts = (string.find(w, '%D') or 64) > 29 and match(w, '^ *(%d+)[%da-v]$', 56)
  if not lasts then return redis.error_reply(malformed) end
  wExpiry, wSince, wFlag = wRenewed + lasts, wRenewed, wFlag % 16
  if wFlag > 1 then
    local has = call('HMGET', lock, 'd', 'e', 'b', 'f', 'm')
    wDetails, h.b, h.m = detailsOf(has[1], has[2]), has[3], has[5]
    if wFlag % 4 > 1 then wSince = h.b or wSince end
    if wFlag % 8 > 3 then wFirst = tonumber(has[4] or nil) end
    if wFlag > 7 then
      wNamed, wToken, tw = match(h.m or '', '^([n-]) (%S+) (%S+)$')
      wNamed, wToken, tw = wNamed == 'n', tonumber(wToken), tonumber(tw)
    end
  end
  tw = tw or t
elseif w then
  local free = match(w, '^(%d+)n?$')
  if not free or #free ~= 24 and #free ~= 40 then return redis.error_reply(malformed) end
  t, tw = tonumber(sub(w, 1, 16)), tonumber(sub(w, 25, 40))
  tw = tw or t
end
if tw == 0 then tw = nil end

-- While the slot migrates to another node, the server refuses a command with TRYAGAIN if one of its keys is missing,
-- and nearly always some key of a lock is missing. The client then names the lock key twice. But the keys move one by
-- one: on the old node a missing key can be neither read nor created; on the new node it may still arrive and must not
-- be created. So a script changes nothing before it knows that each key is present that has members, or that may get
-- its first one. Writers follow each other without holds, so admit checks for holds before a reader would be its first
-- member.
local moving = 'TRYAGAIN the keys of this lock are on their way to another node'

local function reachable(key, members)
  if not moves then return true end
  local found = redis.pcall('ZCARD', key)
  return type(found) == 'number' and (members == 0 or found > 0)
end

if not ((readers == 0 and (queued == 0 or not several) or reachable(holdsKey, readers))
  and (queued == 0 and aside == 0 or reachable(queueKey, queued))
  and (aside == 0 or reachable(asideKey, aside))) then
  return redis.error_reply(moving)
end

-- Formats n as %d does, in parts that fit into a long of 32 bits: %.0f takes twice as long.
local function int(n)
  if n < 100000000 then return format('%d', n) end
  return format('%d%08d', math.floor(n / 100000000), n % 100000000)
end

local function tokenText(n) return format('%08d%08d', math.floor(n / 100000000), n % 100000000) end

local function recordOf(field)
  if fields[field] ~= nil then return fields[field] end
  if had[field] == nil then had[field] = call('HGET', lock, field) end
  return had[field]
end

local function isWaiter(state) return state == 'q' or state == 'd' or state == 'p' end

local function parse(record)
  local state, expiry, token, since, details = match(record or '', '^(%a) (%d+) (%d+) (%d+) (.*)$')
  if isWaiter(state) then expiry = expiry + match(details, '^%a (%d+)') end
  return state, expiry, token, since, details
end

local function named(id, details)
  local owner = match(details, '^%a %d+ (%w+)')
  return owner ~= id and owner or nil
end

local function isShared(details) return string.find(details, '^%a %d+ %+') end

-- Returns the hold that this one converts, or nil.
local function converted(details) return match(details, '^%a %d+ [^ ^]*%^(%w+)') end

local function writerDetails()
  wDetails = wDetails or detailsOf(unpack(call('HMGET', lock, 'd', 'e'), 1, 2))
  return wDetails
end

-- An expiry that is further away than a TTL has digits was written before the clock was set back.
local function setWriter(id, expiry, since, details, first)
  wHold, wSince, wFirst, wToken, wDetails, rewritten = id, since, first, nil, details, true
  if not id then return end
  local lasts = math.min(expiry - ms, 99999999)
  wRenewed, wTTL, wExpiry = sub(usText, 1, 13), format('%8d', lasts), ms + lasts
  wNamed, granted = named(id, details), true
end

local function keepToken(token)
  if token ~= t then wToken = token end
end

-- Puts what belongs to field w into fields, and returns it. n is the text of that field, or false. Without a write hold
-- the rest goes, where there was one.
local function packed(n)
  if not t then return nil end
  local text, differs = t == us and usText or tokenText(t), several and tw ~= t
  if not wHold then
    if #(w or '') == 64 then fields.d, fields.e, fields.b, fields.f, fields.m = false, false, false, false, false end
    local hundred = (granted or kept or not w) and sub(usText, 1, 8) or sub(w, 17, 24)
    return text .. hundred .. (differs and tokenText(tw or 0) or '') .. (n and 'n' or '')
  end
  local flag = wFlag % 2 -- e stays if the details do
  if rewritten then
    flag, fields.d = #wDetails > 64 and 1 or 0, sub(wDetails, 1, 64)
    if flag == 1 then
      fields.e = sub(wDetails, 65)
    elseif wFlag > 0 and wFlag % 2 == 1 then
      fields.e = false
    end
  end
  if wSince ~= wRenewed then
    flag = flag + 2
    if wSince ~= h.b then fields.b = wSince end
  end
  if wFirst then
    flag = flag + 4
    if rewritten then fields.f = tokenText(wFirst) end
  end
  if wNamed or wToken or differs then
    flag = flag + 8
    local marks = (wNamed and 'n ' or '- ') .. (wToken and tokenText(wToken) or '-') .. ' '
      .. (differs and tokenText(tw or 0) or '-')
    if marks ~= h.m then fields.m = marks end
  end
  if n then flag = flag + 16 end
  return text .. wRenewed .. wHold .. wTTL .. (flag > 9 and string.char(87 + flag) or flag)
end

-- Returns what this master has of a hold: its state (w for the write hold), expiry, token, since and details.
local function find(id)
  if wHold == id then return 'w', wExpiry, wToken or t, wSince, writerDetails() end
  local state, expiry, token, since, details = parse(recordOf(id))
  if state == 'g' then expiry = call('ZSCORE', holdsKey, id) or expiry end
  return state, tonumber(expiry), tonumber(token), since, details
end

local function brokenBy(id) return match(recordOf('b:' .. id) or '', '^x %d+ %d+ %d+ (%d+:.*)$') end

-- Accepted when memory is full, and so are the commands after it.
local function keep(key, new, ttl)
  local life
  -- include: life.lua
  if new then call('PEXPIRE', key, life) else call('PEXPIRE', key, life, 'GT') end
end

-- Rebuilds a zset from the records in these states. Returns the number of its members, and the first with its score.
local function restore(key, states)
  local flat, members, last = call('HGETALL', lock), {}, 0
  for i = 1, #flat, 2 do
    local id, record = flat[i], flat[i + 1]
    if fields[id] ~= nil then record = fields[id] end
    local state, expiry, place = parse(id ~= 'e' and record) -- a part of the details may look like a record
    if state and string.find(states, state, 1, true) then
      members[#members + 1] = key == queueKey and place or expiry
      members[#members + 1] = id
      last = math.max(last, expiry + 0)
    end
  end
  for i = 1, #members, 2000 do call('ZADD', key, unpack(members, i, math.min(i + 1999, #members))) end
  if members[1] then keep(key, true, last - ms) end
  if key == holdsKey and h[3] then fields.c = '0' end
  local first = call('ZRANGE', key, 0, 0, 'WITHSCORES')
  return math.floor(#members / 2), first[1], tonumber(first[2])
end

-- Counts the holds of a named owner by token and mode, so that join finds the standing ones.
local function count(owner, by, token, mode)
  local field, groups, all, found = 'o:' .. owner, '', 0, false
  for its, kind, n in string.gmatch(recordOf(field) or '', ' (%d+) (%a) (%d+)') do
    local same = not found and its == token and kind == mode
    if same then found, n = true, n + by end
    if n + 0 > 0 then all, groups = all + n, groups .. ' ' .. its .. ' ' .. kind .. ' ' .. int(n + 0) end
  end
  if not found and by > 0 then all, groups = all + by, groups .. ' ' .. token .. ' ' .. mode .. ' ' .. int(by) end
  fields[field] = all > 0 and int(all) .. groups
end

-- Returns the next token. If the counter is missing, the token is at least this server's clock. A reader's token is
-- only beyond all writers' tokens, so that all masters grant the token that its client proposed. But the tokens that
-- one hold is granted here must increase, or its client would mistake the message of a later grant for an old one. So a
-- hold that has given a grant back gets a token beyond all tokens. For a write of a shared hold it returns the last
-- token of a block and the first.
local function mint(details)
  local last, block = t, match(details, '^w %d+ %+(%d+)')
  if several and match(details, '^r %d+ [^ ~]+ ') then last = tw end
  -- include: mint.lua
  return v, first
end

-- Writes the zset first: if its key holds another type, the script fails before it writes anything that never expires.
local function grant(id, token, ttl, details, first)
  local mode, owner, text = sub(details, 1, 1), named(id, details), token == us and usText or tokenText(token)
  granted = true
  if not t or token > t then
    local before = t
    t = token
    if wHold then keepToken(wToken or before) end
  end
  if mode == 'w' and not wHold then
    setWriter(id, ms + ttl, now, details, first)
  else
    call('ZADD', holdsKey, int(ms + ttl), id)
    keep(holdsKey, readers < 1, ttl)
    readers = readers + 1
    fields[id] = 'g ' .. int(ms + ttl) .. ' ' .. text .. ' ' .. now .. ' ' .. details
    if not firstExpiry or ms + ttl < firstExpiry then firstHold, firstExpiry = id, ms + ttl end
    if mode == 'r' and isShared(details) then fields.c = '0' end
  end
  if mode == 'w' and (not tw or token > tw) then tw = token end
  if owner then count(owner, 1, text, mode) end
end

local function uncount(id, details, token)
  local owner = named(id, details)
  if owner then count(owner, -1, token, sub(details, 1, 1)) end
end

-- Removes the tombstone of a broken hold that is given back.
local function unmark(id)
  local mark = 'b:' .. id
  if not recordOf(mark) then return end
  call('ZREM', asideKey, mark)
  aside = aside - 1
  fields[mark] = false
end

-- With leavers, an id of the queue is added to these instead of being removed: the caller removes them together.
local function drop(id, state, details, leavers)
  if state == 'w' then
    if wToken == 0 then unmark(id) end
    if wNamed then uncount(id, details or writerDetails(), tokenText(wToken or t)) end
    setWriter(nil)
    return
  end
  if state == 'g' then
    local _, _, token = parse(recordOf(id))
    if token == '0' then unmark(id) end
    call('ZREM', holdsKey, id)
    readers = readers - 1
    local told = fields.c or h[3]
    if told and told ~= '0' then fields.c = int(told - 1) end -- the hold may be among the notified ones
    uncount(id, details, token)
  elseif state == 'p' or state == 'x' then
    call('ZREM', asideKey, id)
    aside = aside - 1
  else
    if leavers then leavers[#leavers + 1] = id else call('ZREM', queueKey, id) end
    queued = queued - 1
  end
  fields[id] = false
end

local function enqueue(id, place, details)
  local expiry = ms + match(details, '^%a (%d+)')
  if queued == 0 or headHold and (place < headPlace or place == headPlace and id < headHold) then
    headHold, headExpiry, headPlace = id, expiry, place
  end
  call('ZADD', queueKey, place, id)
  call('PEXPIRE', queueKey, '3600000')
  queued = queued + 1
  alive[id] = true
  fields[id] = 'q ' .. sub(usText, 1, 13) .. ' ' .. int(place) .. ' ' .. now .. ' ' .. details
end

-- Reports whether the head of the queue, which waits at place 0, converts a hold other than from. Two upgrades would
-- wait for each other. A head that converts the same hold is an earlier attempt, which was given up. A head that
-- converts none is a lease that waits for this master to take it back.
local function isRival(head, from)
  local _, _, _, _, its = parse(recordOf(head))
  local other = its and converted(its)
  return other and other ~= from
end

-- Renews a waiter's lease. A renewal shows that a sidelined waiter is alive, though messages do not reach it: the
-- waiter returns to its place, and is granted the lock even if PUBLISH counts no receiver. But if another upgrade has
-- arrived since an upgrade was sidelined, the sidelined upgrade has lost its place: its client acquires again, and is
-- refused as any second upgrade is.
local function await(id, state, place, since, details)
  if state == 'p' then
    local upgrades = place - 0 == 0 and string.byte(details) == 119 -- 'w'
    local head = upgrades and queued > 0 and call('ZRANGE', queueKey, 0, 0, 'WITHSCORES') or {}
    if head[1] and head[2] - 0 == 0 and isRival(head[1], converted(details)) then return drop(id, state, details) end
    state, returned = 'd', returned or queued == 0
    call('ZADD', queueKey, place, id)
    call('PEXPIRE', queueKey, '3600000')
    queued = queued + 1
    call('ZREM', asideKey, id)
    aside = aside - 1
  else
    renewed[#renewed + 1] = place
    renewed[#renewed + 1] = id
  end
  if state ~= 'd' then state = 'q' end
  fields[id] = state .. ' ' .. now .. ' ' .. int(place + 0) .. ' ' .. since .. ' ' .. details
  alive[id] = true
end

-- Writes the renewed waiters to the queue, which may have been lost. If they were missing, more waiters are missing.
local function requeue()
  if not renewed[1] then return end
  local missing = call('ZADD', queueKey, unpack(renewed)) > 0
  keep(queueKey, missing, 0)
  renewed = {}
  if missing and not moves then queued = restore(queueKey, 'qd') end
end

-- Writes what has changed, and returns the reply. HSET comes first: an HDEL that empties the hash deletes it with its
-- expiry, and a hash that HSET then creates would never expire.
local function store(ttl, reply)
  local n = readers + queued + aside > 0 and format('%d %d %d', readers, queued, aside)
  local text = packed(n)
  if text ~= (w or nil) then fields.w = text end
  if n ~= h[2] then fields.n = n end
  local told = fields.c or h[3]
  if told and readers == 0 then
    fields.c = false
  elseif told and queued == 0 and told ~= '0' then
    fields.c = '0' -- no hold waits: the next waiter is announced to all
  end
  local set, gone = {}, {}
  for field, text in pairs(fields) do
    if text then
      set[#set + 1] = field
      set[#set + 1] = text
    else
      gone[#gone + 1] = field
    end
  end
  if set[1] then call('HSET', lock, unpack(set)) end
  if gone[1] then call('HDEL', lock, unpack(gone)) end
  if ttl or granted and not kept then keep(lock, not (w or h[2]), ttl or 0) end
  return reply
end
