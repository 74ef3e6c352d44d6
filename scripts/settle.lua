-- settle.lua: what happens to a lock by itself: holds expire, and whoever waits enters. Included after lock.lua.
--
-- KEYS   1-4 as in lock.lua
-- ARGV   1 as in vote.lua
-- Reply  each script's own; more 1: there is more to purge or to hand on than one call does, refresh goes on with it;
--        2: nobody was let in, since the client has to look at the marker first
-- Twice  what has been purged is gone, and who has been granted is no longer in the queue
-- Cost   purge: ZRANGE of holds and of aside where they have members; where something has expired ZRANGEBYSCORE ZREM
--        HMGET ZRANGE, for at most 64 of each, and for a named owner's hold as in lock.lua; where w has gone and
--        others stand, ZRANGE and HGET of 64 at most; admit: requeue of lock.lua; ZPOPMIN HGET PUBLISH per waiter, for
--        a reader ZRANGE HGET ZREM PUBLISH ZADD PEXPIRE; at most 64 grants and 64 others; wantAll: where cohorts read
--        that have not been told ZRANGE HMGET, and PUBLISH for each, at most 1,000; where a zset was lost restore
--        of lock.lua
local bound, more = 64, 0
local taken -- the head of the queue, where the script has taken it out already

-- The first member of a zset by which n records are found, with its score, behind the number of these.
local function first(key, n, states)
  local head = call('ZRANGE', key, 0, 0, 'WITHSCORES')
  if head[1] or not KEYS[2] then return n, head[1], tonumber(head[2]) end
  return restore(key, states)
end

-- Removes what has expired in a zset that indexes n records. Returns their number, the first member and its expiry.
local function sweep(key, n, states)
  if n == 0 then return 0 end
  local head, expiry
  n, head, expiry = first(key, n, states)
  if not head or expiry > ms then return n, head, expiry end
  local ids = call('ZRANGEBYSCORE', key, '-inf', int(ms), 'LIMIT', 0, bound)
  call('ZREM', key, unpack(ids))
  for i, record in ipairs(call('HMGET', lock, unpack(ids))) do
    local state, _, token, _, details = parse(record)
    if state and string.find(states, state, 1, true) then
      if state == 'g' then uncount(ids[i], details, token) end
      fields[ids[i]] = false
      n = n - 1
    end
  end
  if n == 0 then return 0 end
  n, head, expiry = first(key, n, states)
  if head and expiry <= ms then more = 1 end
  return n, head, expiry
end

-- Tells a process of a grant or asks it to yield. Returns how many have heard it, or nil where that is not known: a
-- refused message must not undo what has been decided.
local function tell(details, message)
  local letter, channel = match(details, '^%a %d+ %S+ (%a)(%S+)')
  if not letter then return nil end
  local heard = redis.pcall(letter == 's' and 'SPUBLISH' or 'PUBLISH', channel, message)
  return letter ~= 'b' and type(heard) == 'number' and heard or nil
end

-- Tells the process of a cohort that somebody waits for what it holds.
local function want(id, details)
  if isCohort(details) then tell(details, id .. ' wanted') end
end

-- Expired holds and tombstones go before anything is decided. Beside w there are only the holds of its client: those
-- that joined it, what it was converted from, what it is being converted to, other attempts to convert the same hold,
-- and those that joined one of these. Where w has gone, the one of those who write that lasts longest takes its place;
-- the others may last longer still.
local function purge()
  if wHold and wExpiry <= ms then drop(wHold, 'w') end
  readers, firstHold, firstExpiry = sweep(holdsKey, readers, 'g')
  aside = sweep(asideKey, aside, 'px')
  if not h[1] or wHold or readers == 0 then return end
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

-- Tells the cohorts that read, and have not been told yet, that somebody waits. All of them: the one that was left out
-- would be waited for. The order is that of the expiries, the last one first. A renewal moves a hold to the front, and
-- tells it who waits; an expiry takes one from the end; and for a release the number is less by one. So nobody is
-- passed over, whatever happens before the next call goes on. Whom the message misses hears it at its renewal.
local function wantAll()
  local told = tonumber(fields.c or h.c or nil)
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

-- Grants a waiter that has left the queue the lock, or puts it aside: nobody has heard of the grant, so its process is
-- dead or does not listen. The message comes before the grant, which nobody sees until the script has ended; but after
-- whatever else could fail. Holds is looked at first because a reader's ZADD fails if that key holds something else.
-- The message of a block names its first token too, and how many wait behind it.
local function offer(id, state, expiry, place, since, details)
  local mode, claim = match(details, '^(%a) (%d+)')
  if mode == 'r' and readers == 0 then call('ZCARD', holdsKey) end
  local token, first = mint(details)
  local text = id .. ' ' .. (token == us and usText or int(token)) .. ' ' .. usText .. ' ' .. claim .. ' ' .. process()
  if first then text = text .. ' ' .. int(first) .. ' ' .. queued end
  local heard = tell(details, text)
  local dead = heard == 0 and (state == 'q' or state == 'f') and not alive[id]
  if dead and type(redis.pcall('ZADD', asideKey, expiry, id)) == 'number' then
    keep(asideKey, aside == 0, 0)
    aside = aside + 1
    fields[id] = 'p ' .. expiry .. ' ' .. place .. ' ' .. since .. ' ' .. details
    return false
  end
  grant(id, token, tonumber(claim), details, first)
  return true
end

-- Whether nobody holds the lock but for reading, and only the hold that this one converts.
local function soleReader(details)
  local from = readers == 1 and converted(details)
  return from and parse(recordOf(from)) == 'g'
end

-- Grants the head of the queue as long as it may enter. Every script that removes a hold or a waiter calls it, so none
-- returns with a head that could have been granted, except what is left for the next call.
-- A waiter leaves the queue before its message is sent: where the server refuses writes (a replica, too few replicas),
-- the script ends there, and nobody hears of a grant that is not written.
-- Behind a write hold nobody is let in; with beneath, dead heads are dropped there too, or they would pile up behind
-- one who holds the lock for days.
local function admit(beneath)
  requeue()
  local granted, others = 0, 0
  while queued > 0 and (beneath or not wHold) do
    if granted == bound or others == bound then
      more = 1
      return
    end
    local open = not wHold and not refusal
    local toWriters = open and not KEYS[2] and readers == 0 and not reachable(holdsKey, 0) -- a reader has to wait
    local popped = taken or open and readers == 0 and not toWriters and call('ZPOPMIN', queueKey)[1]
    taken = nil
    local id = popped or call('ZRANGE', queueKey, 0, 0)[1]
    if not id then
      if not KEYS[2] then return end
      queued = restore(queueKey, 'qdf')
      return admit(beneath)
    end
    local state, expiry, place, since, details = parse(recordOf(id))
    local waits = state == 'q' or state == 'd' or state == 'f'
    if state == 'f' then expiry = farExpiry(expiry, details) end
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
      others = others + 1
    end
  end
end

-- Milliseconds until asking again can tell something new: until w, or the first hold or the head of the queue, can
-- expire. 1 where something was left for the next call, 0 where nothing is known.
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
