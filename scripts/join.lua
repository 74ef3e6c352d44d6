-- join.lua: a nested acquisition by another process of the same owner: joins the owner's standing hold.
--
-- KEYS   as in lock.lua
-- ARGV   1 as in vote.lua, 2 hold, 3 owner, 4 mode r|w, 5 TTL ms, 6 details, 7 the token of the hold to join, 0 for
--        the owner's largest: the masters of a quorum may have got several read holds of it in different orders
-- Reply  joined {1, token, ms left, server us, the owner's counter, the mode of the hold}, the owner holds nothing
--        here, or nothing with that token {0, 0, 0, server us}, it reads and a write was requested {2, ...}, released
--        before its acquire arrived {3, ...}, 4 and 5 as in vote.lua
-- Twice  the joined hold gets the same token and counter
-- Cost   HMGET TIME ZADD PEXPIRE HSET PEXPIRE
local call, lock, vote, id, owner = redis.call, KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local h = call('HMGET', lock, 'w', 'n', 'c', id, 'o:' .. owner)
-- include: vote.lua
if refusal then return refusal end
-- include: settle.lua
if not reachable(holdsKey, readers) then return redis.error_reply(moving) end
had[id], had['o:' .. owner] = h[4], h[5]
purge()
admit()
local state, expiry, value, _, asked = find(id)
if state == 'x' and expiry > ms then return store(nil, { 3, 0, 0, us }) end

local counts, token, mode = recordOf('o:' .. owner) or '0', nil, nil
local n, claimed = match(counts, '^%d+'), tonumber(ARGV[7] or 0)
for its, kind in string.gmatch(counts, ' (%d+) (%a) %d+') do
  if claimed == its + 0 or claimed == 0 and its - (token or 0) >= 0 then token, mode = its, kind end
end
if (state == 'w' or state == 'g') and expiry > ms then
  if value == 0 then return store(nil, { 3, 0, 0, us }) end
  return store(nil, { 1, value, expiry - ms, us, math.max(tonumber(n), 1), match(asked, '^%a') })
end
-- The owner must hold the lock now: it reads, it writes, or its write is being converted.
local stands = mode == 'r' and readers > 0
if wHold then stands = named(wHold, writerDetails()) == owner end
if state or not (token and stands) then return store(nil, { 0, 0, 0, us }) end
if mode == 'r' and ARGV[4] == 'w' then return store(nil, { 2, 0, 0, us }) end
local ttl = tonumber(ARGV[5])
token = tonumber(token)
grant(id, token, ttl, mode .. string.sub(ARGV[6], 2))
return store(ttl, { 1, token, ttl, us, n + 1, mode })
