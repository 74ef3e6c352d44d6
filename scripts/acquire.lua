-- acquire.lua: takes the lock for a hold, or queues the hold.
--
-- KEYS   as in prelude.lua
-- ARGV   1-2 as in prelude.lua, 3 hold, 4 owner, 5 mode r|w, 6 client, 7 TTL ms, 8 claim ms (also the waiter's own
--        lease), 9 order: '0' do not queue, 'a' queue by arrival, 'h' queue by hold id, 10 meta
-- Reply  granted  {1, token, ms left, server us}
--        queued   {0, 0, ms until something may expire, server us, holder's record, its hold id, its ms left}
--        refused  {2, ...as queued}, released before it came {3, 0, 0, server us}, abstaining {4, 0, ms, server us}
-- Twice  a granted hold is answered with its token and what is left of it, a queued one is refreshed in its place
-- Cost   free: EXISTS TIME INCR SET HSET ZADD PEXPIREx2; held: two range reads more, no scan of holds
if abstains then return abstention() end
purge()
local id, mode, claim, order = ARGV[3], ARGV[5], tonumber(ARGV[8]), ARGV[9]

local function granted(r) return { 1, r.token, remaining(id), us } end

local function waiting(status)
  local first = call('ZRANGE', holdsKey, 0, 0, 'WITHSCORES')
  local holder = first[1] or ''
  return { status, 0, nextExpiry(), us, call('HGET', lockKey, holder) or '', holder,
    first[2] and first[2] - ms or 0 }
end

local function refresh()
  call('ZADD', waitsKey, int(ms + claim), id)
  keep(claim)
end

local function mayPass()
  local head = call('ZRANGE', queueKey, 0, 0)[1]
  return not head or (order == 'h' and id < head)
end

local r = load(id)
if r and r.state == 'x' then return { 3, 0, 0, us } end
if r and r.state == 'g' then return granted(r) end
if r then
  refresh()
  return waiting(0)
end

-- A younger holder that has no quorum yields to this one; its process knows if it has. Whom the message misses asks
-- at its next refresh.
local function nudge()
  for _, other in ipairs(call('ZRANGE', holdsKey, 0, 15)) do
    local h = other > id and load(other)
    if h then redis.pcall('PUBLISH', string.match(lockKey, '^(.-):{') .. ':c:' .. h.client, other) end
  end
end

r = { id = id, mode = mode, owner = ARGV[4], client = ARGV[6], token = 0, since = ms, claim = claim, meta = ARGV[10] }
if fresh or (compatible(mode) and mayPass()) then
  hold(r, mint(), tonumber(ARGV[7]))
  return { 1, r.token, tonumber(ARGV[7]), us }
end
if order == '0' then return waiting(2) end
r.state = 'q'
local place = order == 'a' and call('HINCRBY', lockKey, 's', 1) or 0
-- Each zset is written before it is given an expiry, and the record last: where a key holds something else, that one is
-- left as it was, and nothing of ours stays that would not expire.
call('ZADD', waitsKey, int(ms + claim), id)
call('PEXPIRE', waitsKey, call('PTTL', lockKey))
call('ZADD', queueKey, int(place), id)
keep(claim)
save(r)
if order == 'h' then nudge() end
return waiting(0)
