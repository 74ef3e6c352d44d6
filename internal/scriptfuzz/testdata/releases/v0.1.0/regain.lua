-- regain.lua: a master that lost a hold which a quorum still has takes the hold again, with the same token. It does so
-- only if no other hold was counted here since then, and no hold stands here that excludes it.
--
-- KEYS   1-4 as in lock.lua, 5 marker where there are several masters
-- ARGV   1 as in vote.lua, 2 hold, 3 TTL ms, 4 token, 5 details, 6 '1': the client's trust in the grant that this very
--        master gave it has not run out, so the master had the hold when it lost its data, and no other hold was
--        granted here
-- Reply  {1, token, ms left, server us}, also if the hold stands with that token; refused {0, 0, 0, server us};
--        4 as in vote.lua, unless ARGV 6 is '1'; 5 as in vote.lua
-- Twice  the second call finds the hold standing
-- Cost   HMGET TIME HSET PEXPIRE, for a reader ZADD PEXPIRE more
local call, lock, id, ttl, token = redis.call, KEYS[1], ARGV[2], ARGV[3] + 0, ARGV[4] + 0
local h = call('HMGET', lock, 'w', 'n', 't', 'tw', id, 'c')
h.c = h[6]
local clock = call('TIME') -- once: on Redis the clock moves while the script runs
local us = clock[1] * 1000000 + clock[2]
local ms = math.floor(us / 1000)
-- include: vote.lua
if refusal and not (abstains and ARGV[6] == '1') then return refusal end
if changed then return { 5, 0, 0, us } end -- a new quarantine has begun since the client read the marker
-- include: lock.lua
-- include: process.lua
-- include: settle.lua
had[id] = h[5]
purge()
local state, expiry, value, _, asked = find(id)
if (state == 'w' or state == 'g') and expiry > ms then
  admit()
  store()
  if value == token then return { 1, token, expiry - ms, us } end
  return { 0, 0, 0, us }
end

-- Readers are not ordered among themselves, so only a write that was counted since then refuses a reader.
local mode = match(ARGV[5], '^%a')
local last = t
if several and mode == 'r' then last = tw end
local free = not wHold and (mode == 'r' or readers == 0)
local regains = free and state ~= 'x' and (last or 0) <= token
if regains then
  if state then drop(id, state, asked) end -- it waits here, or it has expired
  grant(id, token, ttl, ARGV[5])
end
admit()
store(regains and ttl)
if regains then return { 1, token, ttl, us } end
return { 0, 0, 0, us }
