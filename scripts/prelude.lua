-- prelude.lua: the state of one lock on one master, and the transitions that all scripts share.
-- scripts.Source puts it in front of every script that changes a lock.
--
-- KEYS   1 lock   hash: a record per hold id; 'w' owner of the write hold; 'n:<owner>' its reentrancy counter;
--                 't:<owner>' its token; 's' the last place given out in the queue
--        2 holds  zset: granted holds by expiry (server milliseconds)
--        3 queue  zset: waiting holds by place; with equal places by hold id
--        4 waits  zset: waiting holds and tombstones by expiry
--        5 token  string: the last fencing token
--        6 marker hash of this master, as in marker.lua; left out where this master alone decides
-- ARGV   1 '0' where this master alone decides; one of several gets 'proposal quarantine check': the floor of new
--        tokens; for how many ms this master abstains after it may have lost data; 1 to compare its run id with the
--        marker's, as every script does that the server had to be sent whole: its cache does not survive a restart
--        2 lifetime of the token counter, ms
-- Reply  each script's own; times and tokens are integers below 2^53
-- Twice  the prelude alone changes nothing
-- Cost   EXISTS and TIME; purge: two ZRANGEBYSCORE where the lock exists
--
-- A record is 'state mode owner client token since claim meta': state g granted, q waiting, x released before it
-- came (a tombstone); since in ms; claim is the ms that a hand-off lasts until its first renewal.
-- Numbers reach redis.call through int(): Lua's own conversion prints 1.78e+15.
local lockKey, holdsKey, queueKey, waitsKey, tokenKey = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local call = redis.call
local fresh = call('EXISTS', lockKey) == 0
local clock = call('TIME') -- once: on Redis it moves while the script runs
local us = clock[1] * 1000000 + clock[2]
local ms = math.floor(us / 1000)

local function int(n) return string.format('%.0f', n) end

-- One of several masters has no vote while a lease that it forgot may live. Then it neither grants nor renews.
local proposal, abstains, abstainsFor = nil, false, 0
if ARGV[1] ~= '0' then
  local quarantine, check
  proposal, quarantine, check = string.match(ARGV[1], '^(%d+) (%d+) (%d)$')
  local marker = call('HMGET', KEYS[6], 'until', 'run')
  if check == '1' and marker[1] then
    local info = redis.pcall('INFO', 'server')
    local run = type(info) == 'string' and string.match(info, 'run_id:(%x+)')
    if run and run ~= marker[2] then
      marker[1] = ms + quarantine
      call('HSET', KEYS[6], 'run', run, 'until', int(marker[1]))
    end
  end
  abstainsFor = marker[1] and math.max(marker[1] - ms, 0) or 0
  abstains = not marker[1] or abstainsFor > 0
end

-- The containers expire together, with their longest-lived member: a shorter lease never shortens a longer one, and
-- what has expired is there to be purged while anybody waits behind it. (Were the holds gone by themselves at the
-- expiry of the last one, no script would find it, and nobody would let the queue in.) PEXPIRE is also a write that
-- Redis accepts when its memory is full, and after it accepts the rest of the script.
local function keep(ttl)
  local all = int(math.max(ttl, call('PTTL', lockKey)))
  call('PEXPIRE', lockKey, all)
  call('PEXPIRE', holdsKey, all)
  if call('PEXPIRE', waitsKey, all) == 1 then call('PEXPIRE', queueKey, all) end
end

local function load(id)
  local text = not fresh and call('HGET', lockKey, id)
  if not text then return nil end
  local state, mode, owner, client, token, since, claim, meta =
    string.match(text, '^(%a) (%a) (%S+) (%S+) (%d+) (%d+) (%d+) (.*)$')
  return { id = id, state = state, mode = mode, owner = owner, client = client,
    token = tonumber(token), since = tonumber(since), claim = tonumber(claim), meta = meta }
end

local function record(r)
  return table.concat({ r.state, r.mode, r.owner, r.client, int(r.token), int(r.since), int(r.claim), r.meta }, ' ')
end

local function save(r) call('HSET', lockKey, r.id, record(r)) end

-- v = max(counter + 1, floor). The floor makes a counter that expired, was flushed or rolled back go forward all
-- the same: the server's own clock, or on independent masters the client's proposal, capped by that clock, with
-- the clock itself where the counter is missing.
local function mint()
  local v, floor = call('INCR', tokenKey), us
  if proposal then
    floor = math.min(tonumber(proposal), us + 1000000)
    if v == 1 then floor = math.max(floor, us) end
  end
  v = math.max(v, floor)
  call('SET', tokenKey, int(v), 'PX', ARGV[2])
  return v
end

-- The zset first: where its key holds something else, nothing has been written that would not expire.
local function hold(r, token, ttl)
  r.state, r.token, r.since = 'g', token, ms
  if fresh then -- nothing else is there: all at once
    local fields = { r.id, record(r), 'n:' .. r.owner, 1, 't:' .. r.owner, int(token) }
    if r.mode == 'w' then fields[7], fields[8] = 'w', r.owner end
    call('ZADD', holdsKey, int(ms + ttl), r.id)
    call('PEXPIRE', holdsKey, int(ttl))
    call('HSET', lockKey, unpack(fields))
    call('PEXPIRE', lockKey, int(ttl))
    fresh = false
    return
  end
  save(r)
  call('HINCRBY', lockKey, 'n:' .. r.owner, 1)
  call('HSET', lockKey, 't:' .. r.owner, int(token))
  if r.mode == 'w' then call('HSET', lockKey, 'w', r.owner) end
  call('ZADD', holdsKey, int(ms + ttl), r.id)
  keep(ttl)
end

local function drop(r)
  if r.state == 'g' and call('ZCARD', holdsKey) == 1 and call('EXISTS', waitsKey) == 0 then
    call('DEL', lockKey, holdsKey) -- the last thing there: all at once
    fresh = true
    return
  end
  if r.state == 'g' then
    call('ZREM', holdsKey, r.id)
    if call('HINCRBY', lockKey, 'n:' .. r.owner, -1) <= 0 then
      call('HDEL', lockKey, 'n:' .. r.owner, 't:' .. r.owner)
      if r.mode == 'w' then call('HDEL', lockKey, 'w') end
    end
  else
    call('ZREM', waitsKey, r.id)
    call('ZREM', queueKey, r.id)
  end
  call('HDEL', lockKey, r.id)
end

-- The lock's mode alone: whether the queue lets it pass is the caller's question.
local function compatible(mode)
  if mode == 'w' then return call('EXISTS', holdsKey) == 0 end
  return call('HEXISTS', lockKey, 'w') == 0
end

-- Grants the head of the queue as long as it may enter, and tells its process. The message is a hint (a refresh
-- finds the grant too), so a refused PUBLISH must not undo the hand-off. Without this one no head that may enter is
-- ever left behind a script: it runs wherever a hold or a waiter went.
local function admit()
  while not fresh do
    local id = call('ZRANGE', queueKey, 0, 0)[1]
    if abstains or not id then break end
    local r = load(id)
    local waits = r and r.state == 'q' -- else its record was deleted by somebody, or evicted
    if waits and not compatible(r.mode) then break end
    call('ZREM', queueKey, id)
    if waits then
      call('ZREM', waitsKey, id)
      hold(r, mint(), r.claim)
      redis.pcall('PUBLISH', string.match(lockKey, '^(.-):{') .. ':c:' .. r.client,
        table.concat({ id, int(r.token), int(us), int(r.claim) }, ' '))
    end
  end
  if not fresh and call('EXISTS', holdsKey, waitsKey) == 0 then call('DEL', lockKey) end
end

-- Expired holds and waiters go before anything is decided.
local function purge()
  if fresh then return end
  local gone = false
  for _, key in ipairs({ holdsKey, waitsKey }) do
    for _, id in ipairs(call('ZRANGEBYSCORE', key, '-inf', int(ms))) do
      local r = load(id)
      if r then
        drop(r)
      else
        call('ZREM', key, id)
        call('ZREM', queueKey, id)
      end
      gone = true
    end
  end
  if gone or proposal then admit() end -- one of several masters may have got its vote back meanwhile
end

-- Milliseconds until the next hold or waiter can expire: when asking again can tell something new.
local function nextExpiry()
  local at = nil
  for _, key in ipairs({ holdsKey, waitsKey }) do
    local score = tonumber(call('ZRANGE', key, 0, 0, 'WITHSCORES')[2] or '')
    if score and (not at or score < at) then at = score end
  end
  return at and at - ms or 0
end

-- What a master says that has no vote: status 4, ms until it has one again, or 0 if nobody has given it a marker.
local function abstention() return { 4, 0, abstainsFor, us } end

local function remaining(id)
  return tonumber(call('ZSCORE', holdsKey, id)) - ms
end
