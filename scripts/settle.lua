-- settle.lua: what happens to a lock by itself: holds expire, and waiters enter. Its functions need those of lock.lua.
--
-- KEYS   as in lock.lua
-- ARGV   vote, as in vote.lua
-- Reply  each script's own; more 1: there is more to purge or to hand on than one call does, refresh goes on with it;
--        2: no waiter was let in, since the client has to read the marker first
-- Twice  what has been purged is gone, and a waiter that has been granted the lock is no longer in the queue
-- Cost   purge: ZRANGE of holds and of aside if they have members, for a hold that was ended or broken HGET, and ZADD
--        ZREM if it was broken; if a member has expired ZRANGEBYSCORE ZREM HMGET ZRANGE, for at most 64 dead ones of
--        each, and for a named owner's hold as in lock.lua; if w has gone and other holds stand, ZRANGE and HGET of 64
--        at most; admit: requeue of lock.lua; ZPOPMIN HGET PUBLISH per waiter, for a reader ZRANGE HGET ZREM PUBLISH
--        ZADD PEXPIRE; at most 64 grants and 64 dead waiters; HMGET if a sidelined waiter comes back behind a write
--        hold, and PUBLISH if that is shared; wantAll: if shared holds read that have not been notified ZRANGE HMGET,
--        and PUBLISH for each, at most 1,000; if a zset was lost restore of lock.lua
-- include: lock.lua
local bound, more = 64, 0
local deadBound = bound -- how many expired members of a zset, and how many dead waiters, one call removes
local taken -- the head of the queue, if the script has already taken it out

-- Returns the number of records that a zset indexes, its first member and the score of that member. n is the number
-- that the lock counts; an empty zset is rebuilt.
local function first(key, n, states)
  local head = call('ZRANGE', key, 0, 0, 'WITHSCORES')
  if head[1] or moves then return n, head[1], tonumber(head[2]) end
  return restore(key, states)
end

-- Removes expired members from a zset that indexes n records. Returns the number of records left, the first member
-- and its expiry. The ids of broken holds are added to broken.
local function sweep(key, n, states, broken)
  if n == 0 then return 0 end
  local head, expiry
  n, head, expiry = first(key, n, states)
  if not head or expiry > ms then return n, head, expiry end
  local ids = call('ZRANGEBYSCORE', key, '-inf', int(ms), 'LIMIT', 0, deadBound)
  call('ZREM', key, unpack(ids))
  for i, record in ipairs(call('HMGET', lock, unpack(ids))) do
    local state, _, token, _, details = parse(record)
    if state and string.find(states, state, 1, true) then
      if state == 'g' then uncount(ids[i], details, token) end
      if token == '0' and broken then broken[#broken + 1] = ids[i] end
      fields[ids[i]] = false
      n = n - 1
    end
  end
  if n == 0 then return 0 end
  n, head, expiry = first(key, n, states)
  if head and expiry <= ms then more = 1 end
  return n, head, expiry
end

-- Publishes a message to a process: a grant, a notification or a request to yield. Returns how many subscribers have
-- received it, or nil if that is not known. A message that the server refuses must not undo a decision.
local function tell(details, message)
  local letter, channel = match(details, '^%a %d+ %S+ (%a)(%S+)')
  if not letter then return nil end
  local heard = redis.pcall(letter == 's' and 'SPUBLISH' or 'PUBLISH', channel, message)
  return letter ~= 'b' and type(heard) == 'number' and heard or nil
end

local function want(id, details)
  if isShared(details) then tell(details, id .. ' wanted') end
end

-- Has the tombstone of a broken hold that has expired stop late requests of the hold. Called after sweep has looked at
-- the zset.
local function entomb(id)
  local mark = 'b:' .. id
  local record = recordOf(mark)
  if not record then return end
  call('ZADD', asideKey, match(record, '^x (%d+)'), id)
  call('ZREM', asideKey, mark)
  fields[mark], fields[id] = false, record
end

-- Removes expired holds, sidelined waiters and tombstones before anything is decided. While w stands, all other holds
-- are of its client: holds that joined it, the hold from which it was converted, the hold to which it is being
-- converted, further attempts to convert the same hold, and holds that joined one of these. If w has gone, the write
-- hold that lasts longest takes its place. A read hold may last longer still.
local function purge()
  local broken = {}
  if wHold and wExpiry <= ms then
    if wToken == 0 then -- its owner does not count it any more
      broken[1] = wHold
      setWriter(nil)
    else
      drop(wHold, 'w')
    end
  end
  readers, firstHold, firstExpiry = sweep(holdsKey, readers, 'g', broken)
  aside = sweep(asideKey, aside, 'px')
  for _, id in ipairs(broken) do entomb(id) end
  if wFlag < 0 or wHold or readers == 0 then return end -- no writer has gone
  local last = call('ZRANGE', holdsKey, -bound, -1, 'WITHSCORES')
  for i = #last - 1, 1, -2 do
    local state, _, token, since, details = parse(last[i + 1] - ms > 0 and recordOf(last[i]))
    if state == 'g' and string.byte(details) == 119 then -- 'w'
      call('ZREM', holdsKey, last[i])
      readers = readers - 1
      fields[last[i]] = false
      if last[i] == firstHold then firstHold, firstExpiry = nil, nil end
      setWriter(last[i], tonumber(last[i + 1]), since, details)
      keepToken(tonumber(token))
      if queued > 0 then want(wHold, details) end
      return
    end
  end
end

-- Notifies the shared holds that read, and have not been notified before, that a hold waits. The waiter would have to
-- wait for each one that is left out, so all are notified, in the order of their expiries, the latest first. A renewal
-- moves a hold to the front, and its reply reports the waiter. An expiry removes a hold from the end. A release
-- decrements c. So no hold is skipped, no matter what happens before the next call continues. A process that misses the
-- message learns of the waiter at its renewal.
local function wantAll()
  local told = tonumber(fields.c or h[3] or nil)
  if not told or told >= readers then return end
  local ids = call('ZRANGE', holdsKey, int(told), int(told + 999), 'REV')
  if not ids[1] then return end
  for i, record in ipairs(call('HMGET', lock, unpack(ids))) do
    if fields[ids[i]] ~= nil then record = fields[ids[i]] end
    local state, _, _, _, details = parse(record)
    if state == 'g' then want(ids[i], details) end
  end
  fields.c = int(told + #ids)
  if #ids == 1000 and told + #ids < readers then more = 1 end
end

-- Grants the lock to a waiter that has left the queue, or sidelines the waiter: if no process has received the message
-- of the grant, its process is dead or does not listen. The message goes out before the grant, which no client sees
-- until the script has ended, but after every command that could fail. The script looks at holds first because a
-- reader's ZADD fails if that key holds another type. The message of a block also has its first token, and how many
-- waiters are behind it.
local function offer(id, state, expiry, place, since, details)
  local mode, claim = match(details, '^(%a) (%d+)')
  if mode == 'r' and readers == 0 then call('ZCARD', holdsKey) end
  local token, first = mint(details)
  local text = token == us and usText or tokenText(token)
  -- include: process.lua
  text = id .. ' ' .. text .. ' ' .. usText .. ' ' .. claim .. ' ' .. process
  if first then text = text .. ' ' .. int(first) .. ' ' .. queued end
  local heard = tell(details, text)
  local dead = heard == 0 and state == 'q' and not alive[id]
  if dead and type(redis.pcall('ZADD', asideKey, int(expiry), id)) == 'number' then
    keep(asideKey, aside < 1, 0)
    aside = aside + 1
    fields[id] = 'p ' .. int(expiry - claim) .. ' ' .. place .. ' ' .. since .. ' ' .. details
    return false
  end
  grant(id, token, tonumber(claim), details, first)
  return true
end

-- Reports whether the lock is only read, and only by the hold that this one converts.
local function soleReader(details)
  local from = readers == 1 and converted(details)
  local state, _, token = parse(from and recordOf(from))
  return state == 'g' and token ~= '0' -- not broken
end

-- Grants the lock to the head of the queue as long as the head may enter. Every script that removes a hold or a waiter
-- calls it, so no script returns with a head that could have been granted, except a head that is left for the next
-- call. A waiter leaves the queue before its message is sent: if the server refuses writes (a replica, too few
-- replicas), the script ends there, and no process receives a grant that is not written. No waiter enters behind a
-- write hold. With beneath, dead heads are dropped there too, or they would pile up behind a writer that holds the lock
-- for days.
local function admit(beneath)
  requeue()
  if returned and wHold then want(wHold, writerDetails()) end -- as for the first waiter that acquires
  returned = false
  local granted, dead = 0, 0
  while queued > 0 and (beneath or not wHold) do
    if granted == bound or dead == deadBound then
      more = 1
      return
    end
    local open = not wHold and not refusal
    local toWriters = open and moves and readers == 0 and not reachable(holdsKey, 0) -- a reader has to wait
    local popped = taken or open and readers == 0 and not toWriters and call('ZPOPMIN', queueKey)[1]
    taken = nil
    local id = popped or call('ZRANGE', queueKey, 0, 0)[1]
    if not id then
      if moves then return end
      queued = restore(queueKey, 'qd')
      return admit(beneath)
    end
    local state, expiry, place, since, details = parse(recordOf(id))
    local waits = state == 'q' or state == 'd'
    local lives = waits and expiry - ms > 0
    local writes = lives and string.sub(details, 1, 1) == 'w'
    local enters = popped or open and (not writes or soleReader(details))
    if toWriters then enters = writes end
    if lives and not enters then
      headHold, headExpiry, headPlace = id, tonumber(expiry), tonumber(place)
      if not wHold then wantAll() end
      return
    end
    if not popped then call('ZREM', queueKey, id) end
    if waits then
      queued = queued - 1
      fields[id] = false
    end
    if lives and offer(id, state, expiry, place, since, details) then
      granted = granted + 1
    else
      dead = dead + 1
    end
  end
end

-- Returns the milliseconds until a new call can report something new: until w, or the first hold or the head of the
-- queue, can expire, or until a quarantine ends. Returns 1 if something was left for the next call, 0 if nothing is
-- known.
local function wake()
  if more == 1 then return 1 end
  local at = wExpiry
  if not wHold then
    at = firstExpiry
    if headExpiry and (not at or headExpiry < at) then at = headExpiry end
    if abstains and refusal[3] > 0 and queued > 0 and (not at or ms + refusal[3] < at) then at = ms + refusal[3] end
  end
  return at and math.max(at - ms, 1) or 0
end
