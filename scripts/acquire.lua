-- acquire.lua: takes the lock for a hold, or queues the hold.
--
-- KEYS   as in lock.lua
-- ARGV   1 request: the end of field w from the hold on, as it stands there for this hold alone, so that nothing is
--        computed: hold, TTL ms, and a digit; for a read hold 'r' in its place, 'n' with a named owner, 's' if shared;
--        2 details, 3 vote: as in vote.lua, left out for '0' where nothing is behind it, 4 '0': do not queue, else by
--        arrival, of several masters by hold id; then of an adoption, which is not queued: 5 the token of the hold that
--        it converts, 6 the secret whose hash is that hold's mark
-- Reply  granted  {1, token, ms left, server us}, and the first token of its block if it has one; or the line 'token us
--                 first' for the TTL; or server us alone, with that as the token
--        an upgrade, and another reader's waits already, or an adoption, and another stands {7, 0, 0, server us}
--        queued   {0, 0, ms until something may expire, server us, and of the holder: hold, ms left, ms held, details},
--                 or the line of behind.lua
--        refused  {2, ...as queued}, released before its acquire arrived, or the hold that it adopts does not stand
--        with that token, mode and mark {3, 0, 0, server us}, broken, or the hold that it converts is,
--        {3, 0, 0, server us, who and why}, 4 and 5 as in vote.lua
-- Twice  a granted hold gets its token and the time left of it; a queued hold is refreshed in its place, or gets 7 if
--        it was sidelined and another upgrade has arrived before it; an adoption that has ended leaves no hold to adopt
--        where it has succeeded, and may stand again where not; a release knows whether the acquire may come twice, and
--        then its tombstone stays
-- Cost   HGET TIME, for a reader HMGET TIME, for a writer that finds a queue or readers HMGET more; then as in free.lua
--        and behind.lua; else as in lock.lua, settle.lua, inway.lua and adopt.lua; for a single attempt with 1,024 for
--        the bound of what is dead; the first in the queue behind a shared hold: PUBLISH more, or wantAll of settle.lua
--        if it reads; a tombstone: ZREM
local call, sub, byte, find, match = redis.call, string.sub, string.byte, string.find, string.match
local lock, request, details, vote = KEYS[1], ARGV[1], ARGV[2], ARGV[3] or '0'
local long, _, _, _, _, _, _, kind = byte(request, 28, 35)
local mode, id, w, n, own, told = 'w', nil, nil, nil, nil, nil -- told: field c
if kind < 58 then -- a digit. Without n there is neither a record of this hold nor c, so a writer reads all three later
  w = call('HGET', lock, 'w')
else
  mode, id = 'r', sub(request, 1, 26)
  local has = call('HMGET', lock, 'w', 'n', id, 'c')
  w, n, own, told = has[1], has[2], has[3], has[4]
end
local size = w and #w or 64 -- of w, for a free lock without the mark of n
if size < 64 and byte(w, -1) == 110 then -- 'n'. The last reader has left it behind, or there is n
  size = size - 1
  if mode == 'w' then n, own, told = unpack(call('HMGET', lock, 'n', sub(request, 1, 26), 'c')) end
end
-- include: vote.lua
if refusal then return refusal end

local left -- ms until the write hold expires; not a number if w is malformed
if w and #w == 64 then left = (tonumber(sub(w, 17, 29)) or 0 / 0) + (tonumber(sub(w, 56, 63)) or 0 / 0) - ms end
-- include: free.lua
id = sub(request, 1, 26)
local ttl, order, moves, line = sub(request, 27, 34) + 0, ARGV[4] or several and 'h' or 'a', KEYS[2] == lock, nil
-- include: behind.lua
if line then return line end
if n == nil and (byte(w or '', -1) or 255) > 102 then n, own, told = unpack(call('HMGET', lock, 'n', id, 'c')) end
local h = { w, n or false, told }

-- include: settle.lua
-- include: inway.lua
-- include: adopt.lua

had[id] = own
local state, expiry, place, since, asked = find(id)
if isWaiter(state) then await(id, state, place, since, asked) end
if order == '0' then deadBound = 1024 end -- nothing continues for a single attempt, so what is dead may not refuse it
purge()
admit()
local token
state, expiry, token, since, asked = find(id) -- after purge, which leaves a tombstone of a broken hold
if state == 'x' and expiry > ms then
  if asked == '.' then drop(id, state) end
  return store(nil, { 3, 0, 0, us, #asked > 1 and asked or nil })
end
if (state == 'w' or state == 'g') and expiry > ms then
  if token == 0 then return store(nil, { 3, 0, 0, us, brokenBy(id) }) end
  return store(nil, { 1, token, expiry - ms, us, state == 'w' and wFirst or nil })
end
if from and not ARGV[5] then other = inTheWay() end
if isWaiter(state) then return store(0, waiting(0)) end
if state then drop(id, state, asked) end -- expired, and purge reached its bound before it
if ARGV[5] then
  local reply = adopt()
  return store(reply[1] == 1 and ttl, reply)
end

local enters = not wHold and (mode == 'r' or readers == 0)
if from then
  enters = enters or not other and (mode == 'w' and wHold ~= from or mode == 'r' and wHold == from)
  if not enters and mode == 'w' and headPlace == 0 and isRival(headHold, from) then
    return store(nil, { 7, 0, 0, us })
  end
elseif enters and queued > 0 then
  enters = order == 'h' and headHold and headPlace > 0 and id < headHold
end
local makes, members = queueKey, queued
if enters then makes, members = holdsKey, readers end
if (enters and mode == 'r' or not enters and order ~= '0') and not reachable(makes, members) then
  return store(nil, redis.error_reply(moving))
end
if enters and from and (wHold == from and wToken == 0 or match(recordOf(from) or '', '^g %d+ 0 ')) then
  return store(nil, { 3, 0, 0, us, brokenBy(from) })
end
if enters then
  local first
  told = fields.c or h[3]
  token, first = mint(details)
  grant(id, token, ttl, details, first)
  if queued > 0 and not (from and mode == 'r') then -- a downgrade is notified when the write hold is released
    want(id, details)
    if told and fields.c then fields.c = told end -- the other readers have been notified before
  end
  return store(ttl, { 1, token, ttl, us, first })
end
if order == '0' then return store(nil, waiting(2)) end
local at = 1 -- order 'h': by hold id
if from then at = 0 elseif order == 'a' then at = call('HINCRBY', lock, 's', 1) end
enqueue(id, at, details)
if order == 'h' then nudge() end
if not wHold then
  wantAll()
elseif queued == 1 then -- the first waiter asks for the lock
  want(wHold, writerDetails())
end
return store(0, waiting(0))
