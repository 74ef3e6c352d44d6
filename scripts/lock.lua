-- lock.lua: the state of one lock on one master, and what scripts do to one hold in it. Included after the common
-- case of a script, so that the common case does not pay for these functions.
--
-- KEYS   1 lock   hash: t the largest token of any grant, tw the largest of a write grant (several masters only);
--                 w the write hold, 'hold expiry since', and ' n' where its owner is named, or where it has a block
--                 of tokens the first of them; its token is t, since nobody else is granted one while it stands, or
--                 '=token' behind all that where what joined or converts it has a later one;
--                 d and e its details, e what is beyond 64 bytes;
--                 n the numbers of records that holds, queue and aside index, absent when there are none;
--                 s the last place given out; c where a cohort reads, or has read: how many of the read holds, from
--                 the one that expires last, have been told that somebody waits;
--                 f 'route expiry since' of each process that has waiters in state f;
--                 <hold> 'state expiry token since details' of every other hold: its record;
--                 o:<owner> 'number', then ' token mode number' for each token and mode that a named owner holds, the
--                 latest last
--        2 holds  zset: read holds, and write holds that joined w, by expiry
--        3 queue  zset: waiters by place, 0 for one who converts what it has; with equal places by hold id
--        4 aside  zset: tombstones and waiters that were passed over, by expiry
--        2-4 may be left out while the slot of the lock is on its way to another node of a Cluster; see reachable
-- ARGV   1 as in vote.lua
-- Reply  each script's own; times and tokens are integers below 2^53
-- Twice  the functions that change something name what they change by its hold id
-- Cost   nothing by itself; grant of a reader: ZADD PEXPIRE; drop: ZREM, for w of a named owner HMGET; for the hold of
--        a named owner HGET; await: for who was passed over ZADD PEXPIRE ZREM, and ZRANGE HGET if it upgrades;
--        requeue: ZADD PEXPIRE however many were renewed; store: HSET HDEL, and PEXPIRE where something was granted or
--        enqueued; restore: HGETALL PEXPIRE, and ZADD per 1,000 records
--
-- States: g granted (its expiry is the score in holds; the record's is not before that), q waiting, p passed over, d
-- waiting though messages do not reach it, f waiting far behind others of its process, x released before it came (a
-- tombstone). A waiter's token is its place. One in state f has no lease of its own, so a crowd costs its process one
-- refresh of the nearest: it lives until the expiry that field f has for its process, if that process has renewed it in
-- time ever since the waiter got the state. Its record has that moment in place of an expiry, field f since when.
-- A record and n are in one key, so they always agree. The zsets only index the records, and each of these keys may be
-- gone while the lock stands: expired, evicted, or deleted by an operator. So the records decide:
--   n counts records, never members. A member without a record of its kind is nothing, and is dropped when it is met.
--   A zset that has no member left while n counts some is made again from all records (restore).
--   holds and aside have all members or none: a script that adds one looks at them first. The queue may lack some: a
--   script that queues a hold behind a write hold does not look. So whatever renews a waiter writes its member again
--   (await), and where it was missing the queue is made again.
-- details: 'mode claim owner route meta', as the client made it: claim ms, an hour at most, is how long a waiter lives
-- without a refresh and a hand-off without a renewal; owner is named, or the hold's id, or '-' for the latter, or '+B'
-- for the latter and a cohort, the goroutines of a process that share the hold: the process is told when somebody has
-- to wait, and a write is granted a block of B tokens. A hold that is to take the place of another of the same client
-- names that one behind its owner: '-^hold'. It does not wait for it, and both stand until the old one is released: so
-- nobody else gets in between, and whoever gives up still has what it had. '~' behind all that is the master's own: the
-- hold has given a grant back, see mint. route is a letter (p PUBLISH, s SPUBLISH,
-- b PUBLISH whose count says nothing) and the channel. Times are ms of the server's clock.
-- Values over 64 bytes would make Redis keep the hash as a table, which takes twice the memory: so w has three fields.
-- From the script: call, lock; clock, us, ms and what vote.lua sets; h, the fields w n t tw as they were, h.c where it
-- is known.
local holdsKey, queueKey, asideKey = KEYS[2] or lock .. ':h', KEYS[3] or lock .. ':q', KEYS[4] or lock .. ':x'
local match, format = string.match, string.format
local readers, queued, aside = 0, 0, 0
local t, tw = tonumber(h[3]), tonumber(h[4])
local fields = {}              -- what store will write: text, or false for a field to be deleted
local had = {}                 -- records that the script has read already
local renewed = {}             -- places and ids of waiters, for requeue
local alive = {}               -- waiters whose process sent this very script: it will hear of a grant by the reply
local firstHold, firstExpiry   -- of holds
local headHold, headExpiry, headPlace -- of the queue, where it has been looked at and must wait
local wHold, wExpiry, wSince, wNamed, wFirst, wToken, wDetails
local now, usText = format('%s%03d', clock[1], ms % 1000), format('%s%06d', clock[1], us % 1000000)

if h[2] then
  readers, queued, aside = match(h[2], '^(%d+) (%d+) (%d+)$')
  readers, queued, aside = readers + 0, queued + 0, aside + 0
end
local waited = queued > 0
if h[1] then
  wHold, wExpiry, wSince, wNamed, wFirst, wToken = match(h[1], '^(%S+) (%d+) (%d+)( ?n?) ?(%d*) ?=?(%d*)$')
  wExpiry, wFirst, wToken = tonumber(wExpiry), tonumber(wFirst), tonumber(wToken)
  if wNamed ~= ' n' then wNamed = '' end
end

-- While its slot is on the way to another node, a command is refused with TRYAGAIN if one of its keys is missing, and
-- of a lock's keys some nearly always are. The client then names the lock alone. But the keys move one by one: on the
-- old node a missing one can be neither read nor made, on the new one it may be yet to come and must not be made anew.
-- So nothing is begun before it is known that each key is at hand which has members, or which may get its first one.
-- But writers follow each other without holds; admit looks for it before a reader would be the first.
local moving = 'TRYAGAIN the keys of this lock are on their way to another node'

local function reachable(key, members)
  if KEYS[2] then return true end
  local found = redis.pcall('ZCARD', key)
  return type(found) == 'number' and (members == 0 or found > 0)
end

if not ((readers == 0 and (queued == 0 or not several) or reachable(holdsKey, readers))
  and (queued == 0 and aside == 0 or reachable(queueKey, queued))
  and (aside == 0 or reachable(asideKey, aside))) then
  return redis.error_reply(moving)
end

-- %d of parts that fit into a long of 32 bits: %.0f takes twice as long.
local function int(n)
  if n < 100000000 then return format('%d', n) end
  return format('%d%08d', math.floor(n / 100000000), n % 100000000)
end

local function recordOf(field)
  if fields[field] ~= nil then return fields[field] end
  if had[field] == nil then had[field] = call('HGET', lock, field) end
  return had[field]
end

local function parse(record) return match(record or '', '^(%a) (%d+) (%d+) (%d+) (.*)$') end

local function isWaiter(state) return state == 'q' or state == 'd' or state == 'p' or state == 'f' end

-- The expiry of a waiter in state f: that of its process, if it has not lapsed since then.
local function farExpiry(begun, details)
  local route = match(details, '^%a %d+ %S+ (%S+)')
  for its, expiry, since in string.gmatch(recordOf('f') or '', '(%S+) (%d+) (%d+)') do
    if its == route and begun - since >= 0 then return expiry end
  end
  return '0'
end

local function named(id, details)
  local owner = match(details, '^%a %d+ (%w+)')
  return owner ~= id and owner or nil
end

local function isCohort(details) return string.find(details, '^%a %d+ %+') end

-- The hold that this one converts, or nil.
local function converted(details) return match(details, '^%a %d+ [^ ^]*%^(%w+)') end

local function writerDetails()
  if not wDetails then
    local parts = call('HMGET', lock, 'd', 'e')
    wDetails = (parts[1] or '') .. (parts[2] or '')
  end
  return wDetails
end

local function writerRecord()
  local more = wFirst and ' ' .. int(wFirst) or wNamed
  if wToken then more = more .. ' =' .. int(wToken) end
  return wHold .. ' ' .. int(wExpiry) .. ' ' .. wSince .. more
end

local function setWriter(id, expiry, since, details, first)
  wHold, wExpiry, wSince, wFirst, wToken, wDetails = id, expiry, since, first, nil, details
  fields.w = false
  fields.d = false
  fields.e = false
  if not id then return end
  wNamed = named(id, details) and ' n' or ''
  fields.w = writerRecord()
  fields.d = string.sub(details, 1, 64)
  if #details > 64 then
    fields.e = string.sub(details, 65)
  elseif not h[1] then
    fields.e = nil -- there is none
  end
end

-- Writes down the token of the write hold where it is not t.
local function keepToken(token)
  if token ~= t then
    wToken = token
    fields.w = writerRecord()
  end
end

-- What this master has of a hold: its state, w for the write hold, then expiry, token, since and details.
local function find(id)
  if wHold == id then return 'w', wExpiry, wToken or t, wSince, writerDetails() end
  local state, expiry, token, since, details = parse(recordOf(id))
  if state == 'g' then expiry = call('ZSCORE', holdsKey, id) or expiry end
  return state, tonumber(expiry), tonumber(token), since, details
end

-- A key lives an hour, or as long as its longest member: the token must outlive the hold, and what has expired must
-- still be there to be purged. GT compares with the expiry that there is, so a new key gets its first without.
local function keep(key, new, ttl)
  local life = ttl > 3600000 and int(ttl) or '3600000'
  if new then call('PEXPIRE', key, life) else call('PEXPIRE', key, life, 'GT') end
end

-- Makes a zset again from the records of those states. Returns the number of its members, and the first with its score.
local function restore(key, states)
  local flat, members, last = call('HGETALL', lock), {}, 0
  for i = 1, #flat, 2 do
    local id, record = flat[i], flat[i + 1]
    if fields[id] ~= nil then record = fields[id] end
    local state, expiry, place = parse(record)
    if state and string.find(states, state, 1, true) then
      members[#members + 1] = key == queueKey and place or expiry
      members[#members + 1] = id
      last = math.max(last, expiry + 0)
    end
  end
  for i = 1, #members, 2000 do call('ZADD', key, unpack(members, i, math.min(i + 1999, #members))) end
  if members[1] then call('PEXPIRE', key, int(math.max(last - ms, 3600000))) end
  if key == holdsKey and h.c then fields.c = '0' end
  local first = call('ZRANGE', key, 0, 0, 'WITHSCORES')
  return math.floor(#members / 2), first[1], tonumber(first[2])
end

-- Counts the holds of a named owner by token and mode, so that join finds those that stand.
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

-- The next token; where the counter is missing it is at least this server's clock. A reader's is beyond all writers'
-- only, so that all masters grant the one that its client proposed. But the tokens that one hold is granted here
-- increase, or its client would take the message of a later grant for an old one: so where the hold has given one back,
-- the next is beyond all tokens. For a write of a cohort, the last of a block and the first, which is what any other
-- would get. A block that would run further ahead of this server's clock than a proposal may is smaller, down to one.
local function mint(details)
  local last = t
  if several and match(details, '^r %d+ [^ ~]+ ') then last = tw end
  local first = last and last + 1 or us
  if first < floor then first = floor end
  local block = match(details, '^w %d+ %+(%d+)')
  if not block then return first end
  return math.max(math.min(first + block - 1, us + 1000000), first), first
end

-- The zset first: where its key holds something else, nothing has been written that would not expire.
local function grant(id, token, ttl, details, first)
  local mode, owner, text = string.sub(details, 1, 1), named(id, details), token == us and usText or int(token)
  if not t or token > t then
    local before = t
    t = token
    fields.t = text
    if wHold then keepToken(wToken or before) end
  end
  if mode == 'w' and not wHold then
    setWriter(id, ms + ttl, now, details, first)
  else
    call('ZADD', holdsKey, int(ms + ttl), id)
    keep(holdsKey, readers == 0, ttl)
    readers = readers + 1
    fields[id] = 'g ' .. int(ms + ttl) .. ' ' .. text .. ' ' .. now .. ' ' .. details
    if not firstExpiry or ms + ttl < firstExpiry then firstHold, firstExpiry = id, ms + ttl end
    if mode == 'r' and isCohort(details) then fields.c = '0' end
  end
  if several and mode == 'w' and (not tw or token > tw) then
    tw = token
    fields.tw = text
  end
  if owner then count(owner, 1, text, mode) end
end

local function uncount(id, details, token)
  local owner = named(id, details)
  if owner then count(owner, -1, token, string.sub(details, 1, 1)) end
end

local function drop(id, state, details)
  if state == 'w' then
    if wNamed ~= '' then uncount(id, details or writerDetails(), int(wToken or t)) end
    setWriter(nil)
    return
  end
  if state == 'g' then
    local _, _, token = parse(recordOf(id))
    call('ZREM', holdsKey, id)
    readers = readers - 1
    local told = fields.c or h.c
    if told and told ~= '0' then fields.c = int(told - 1) end -- it may have been one of those
    uncount(id, details, token)
  elseif state == 'p' or state == 'x' then
    call('ZREM', asideKey, id)
    aside = aside - 1
  else
    call('ZREM', queueKey, id)
    queued = queued - 1
  end
  fields[id] = false
end

local function enqueue(id, place, details)
  local expiry = ms + match(details, '^%a (%d+)')
  if queued == 0 or headHold and (place == 0 or headPlace == 1 and place == 1 and id < headHold) then
    headHold, headExpiry, headPlace = id, expiry, place
  end
  call('ZADD', queueKey, place, id)
  call('PEXPIRE', queueKey, '3600000')
  queued = queued + 1
  alive[id] = true
  fields[id] = 'q ' .. int(expiry) .. ' ' .. int(place) .. ' ' .. now .. ' ' .. details
end

-- Whether the head of the queue, which waits at place 0, converts another hold than that one. Two who upgrade would
-- wait for each other; one that converts the same hold is an attempt before, which was given up.
local function isRival(head, from)
  local _, _, _, _, its = parse(recordOf(head))
  return its and converted(its) ~= from
end

-- Renews a waiter's lease. One that was passed over is alive, then, though messages do not reach it: it goes back to
-- its place, and is granted the lock whatever PUBLISH counts. But where another upgrade has come before an upgrade
-- meanwhile, its place is gone: it asks anew, and is refused as whoever comes second is. With far it gets state f.
local function await(id, state, place, since, details, far)
  if state == 'p' then
    local upgrades = place - 0 == 0 and string.byte(details) == 119 -- 'w'
    local head = upgrades and queued > 0 and call('ZRANGE', queueKey, 0, 0, 'WITHSCORES') or {}
    if head[1] and head[2] - 0 == 0 and isRival(head[1], converted(details)) then return drop(id, state, details) end
    state = 'd'
    call('ZADD', queueKey, place, id)
    call('PEXPIRE', queueKey, '3600000')
    queued = queued + 1
    call('ZREM', asideKey, id)
    aside = aside - 1
  else
    renewed[#renewed + 1] = place
    renewed[#renewed + 1] = id
  end
  local expiry = int(ms + match(details, '^%a (%d+)'))
  if state ~= 'd' then state = far and 'f' or 'q' end
  if state == 'f' then expiry = now end
  fields[id] = state .. ' ' .. expiry .. ' ' .. int(place + 0) .. ' ' .. since .. ' ' .. details
  alive[id] = true
end

-- Those that were renewed are in the queue, whatever has become of it; and where they were not, others are missing too.
local function requeue()
  if not renewed[1] then return end
  local missing = call('ZADD', queueKey, unpack(renewed)) > 0
  keep(queueKey, missing, 0)
  renewed = {}
  if missing and KEYS[2] then queued = restore(queueKey, 'qdf') end
end

-- Writes what has changed. HSET comes first: a hash that HDEL empties is gone with its expiry, and what HSET made anew
-- would stay for ever.
local function store(ttl)
  local n = readers + queued + aside > 0 and format('%d %d %d', readers, queued, aside)
  if n ~= h[2] then fields.n = n end
  local told = fields.c or h.c
  if told and readers == 0 then
    fields.c = false
  elseif told and queued == 0 and told ~= '0' then
    fields.c = '0' -- nobody waits: whoever comes is announced to all
  end
  if waited and queued == 0 then fields.f = false end
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
  if ttl then keep(lock, not (h[1] or h[2] or h[3]), ttl) end
end
