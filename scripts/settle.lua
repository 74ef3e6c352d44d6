-- settle.lua: what happens to a lock by itself: holds expire, and whoever waits enters. Included after lock.lua.
--
-- KEYS   1-4 as in lock.lua
-- ARGV   1 as in vote.lua
-- Reply  each script's own; more 1: there is more to purge or to hand on than one call does, refresh goes on with it;
--        2: nobody was let in, since the client has to look at the marker first
-- Twice  what has been purged is gone, and who has been granted is no longer in the queue
-- Cost   purge: ZRANGE of holds and of aside where they have members; where something has expired ZRANGEBYSCORE ZREM
--        HMGET ZRANGE ZCARD, for at most 64 of each, and for a named owner's hold as in lock.lua; where w has gone and
--        others stand, ZRANGE and HGET of 64 at most, for a reader of a named owner HGET more; admit: ZPOPMIN HGET
--        PUBLISH per waiter, for a reader ZRANGE HGET ZREM PUBLISH ZADD PEXPIRE, for a cohort's reader before a writer
--        PUBLISH more, and where a conversion has ended ZRANGE, HGET and PUBLISH of 64 cohorts; at most 64 grants and
--        64 others
local bound, more = 64, 0
local taken -- the head of the queue, where the script has taken it out already
local unheard = h[1] -- readers may be in whom nobody has told who waits: what was written may be read now

-- Removes what has expired in a zset of n members. Returns the number of its members, and the first with its expiry.
local function sweep(key, n, states)
  if n == 0 then return 0 end
  local first = call('ZRANGE', key, 0, 0, 'WITHSCORES')
  if first[1] and first[2] - ms <= 0 then
    local ids = call('ZRANGEBYSCORE', key, '-inf', int(ms), 'LIMIT', 0, bound)
    call('ZREM', key, unpack(ids))
    for i, record in ipairs(call('HMGET', lock, unpack(ids))) do
      local state, _, token, _, details = parse(record)
      if state and string.find(states, state, 1, true) then
        if state == 'g' then uncount(ids[i], details, token) end
        fields[ids[i]] = false
      end
    end
    first = call('ZRANGE', key, 0, 0, 'WITHSCORES')
    if first[1] and first[2] - ms <= 0 then more = 1 end
    n = call('ZCARD', key)
  end
  if not first[1] then return 0 end -- also where the zset was evicted
  return n, first[1], tonumber(first[2])
end

-- Expired holds and tombstones go before anything is decided. Beside w there are only the holds of its client: those
-- that joined it, what it was converted from, what it is being converted to, other attempts to convert the same hold,
-- and those that joined one of these. Where w has gone, the one of those who write that lasts longest takes its place;
-- the others may last longer still. Where none writes, whoever joins their owner from now on reads, with the token of
-- one that stands.
local function purge()
  if wHold and wExpiry <= ms then drop(wHold, 'w') end
  readers, firstHold, firstExpiry = sweep(holdsKey, readers, 'g')
  aside = sweep(asideKey, aside, 'px')
  if not h[1] or wHold or readers == 0 then return end
  local last = call('ZRANGE', holdsKey, -bound, -1, 'WITHSCORES')
  for i = #last - 1, 1, -2 do
    local _, _, token, since, details = parse(last[i + 1] - ms > 0 and recordOf(last[i]))
    local owner = details and named(last[i], details)
    if details and string.byte(details) == 119 then -- 'w'
      readers = readers - call('ZREM', holdsKey, last[i])
      fields[last[i]] = false
      if last[i] == firstHold then firstHold, firstExpiry = nil, nil end
      setWriter(last[i], tonumber(last[i + 1]), since, details)
      keepToken(tonumber(token))
      if owner then count(owner, 0, token, 'w') end -- not that of a conversion that was given up
      return
    end
    if owner and match(recordOf('o:' .. owner) or '', '%a$') == 'w' then count(owner, 0, token, 'r') end
  end
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

-- Tells the cohorts that hold the lock, but those in told. Whom the message misses hears it at its renewal.
local function wantAll(told)
  if wHold then return want(wHold, writerDetails()) end
  if not (h.c or fields.c) then return end
  for _, id in ipairs(call('ZRANGE', holdsKey, 0, bound - 1)) do
    local _, _, _, _, details = parse(not told[id] and recordOf(id))
    if details then want(id, details) end
  end
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
  local dead = heard == 0 and state == 'q' and not alive[id]
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
  return from and call('ZSCORE', holdsKey, from) and true or false
end

-- Grants the head of the queue as long as it may enter. Every script that removes a hold or a waiter calls it, so none
-- returns with a head that could have been granted, except what is left for the next call.
-- A waiter leaves the queue before its message is sent: where the server refuses writes (a replica, too few replicas),
-- the script ends there, and nobody hears of a grant that is not written.
-- Behind a write hold nobody is let in; with beneath, dead heads are dropped there too, or they would pile up behind
-- one who holds the lock for days.
local function admit(beneath)
  local granted, others, reading = 0, 0, {}
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
    if not id then -- evicted
      queued = 0
      return
    end
    local record = recordOf(id) -- none: it was deleted or evicted
    local state, expiry, place, since, details = parse(record)
    local lives = (state == 'q' or state == 'd') and expiry - ms > 0
    local writes = lives and string.sub(details, 1, 1) == 'w'
    local enters = popped or open and (not writes or soleReader(details))
    if toWriters then enters = writes end
    if lives and not enters then
      headHold, headExpiry, headPlace = id, tonumber(expiry), tonumber(place)
      for hold, text in pairs(reading) do want(hold, text) end
      if unheard and not wHold and readers > granted then wantAll(reading) end
      return
    end
    if not popped then call('ZREM', queueKey, id) end
    if record then
      queued = queued - 1
      fields[id] = false
    end
    if lives and offer(id, state, expiry, place, since, details) then
      granted = granted + 1
      if not wHold then reading[id] = details end
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
