-- regain.lua: a master that lost a hold which a quorum still has takes the hold again, with the same token. So does a
-- master that granted the hold with a larger token, for example because the request came late. The client sends it only
-- after a quorum has confirmed the hold, and counts the answer only while the lease stands. So no hold that was counted
-- here meanwhile had a quorum, and the client of such a hold counts a grant no more that is gone here. While another
-- hold stands here that excludes this one, it waits at the head of the queue, for the claim in its details: a TTL. The
-- other one is without a quorum, and yields to it as to an upgrade.
--
-- A counter that is ahead of this server's clock goes back: lower.lua.
--
-- KEYS   as in lock.lua
-- ARGV   1 as in vote.lua, 2 hold, 3 TTL ms, 4 token, 5 details, 6 '1': the client's trust in the grant that this very
--        master gave it has not run out, so the master had the hold when it lost its data, and no other hold was
--        granted here; 7 the token of this master's own grant, if that is larger; may be left out
-- Reply  {1, token, ms left, server us}, also if the hold stands with that token; refused {0, 0, 0, server us}; it
--        waits {2, 0, 0, server us}; 4 as in vote.lua, unless ARGV 6 is '1'; 5 as in vote.lua
-- Twice  the second call finds the hold standing, or waiting in its place
-- Cost   HMGET TIME HSET PEXPIRE, for a reader ZADD PEXPIRE more; to wait ZADD PEXPIRE HSET
local call, lock, vote, id, ttl, token = redis.call, KEYS[1], ARGV[1], ARGV[2], ARGV[3] + 0, ARGV[4] + 0
local h = call('HMGET', lock, 'w', 'n', 'c', id)
-- include: vote.lua
if refusal and not (abstains and ARGV[6] == '1') then return refusal end
if changed then return { 5, 0, 0, us } end -- a new quarantine has begun since the client read the marker
-- include: settle.lua
had[id] = h[4]
purge()
local state, expiry, value, since, asked = find(id)
local mode = match(ARGV[5], '^%a')
local stands = (state == 'w' or state == 'g') and expiry > ms
local alone = not wHold and (mode == 'r' or readers == 0)
-- A larger token is that of a late grant. Of a write that others have joined or convert it stays.
local late = stands and value > token and not refusal and (state == 'w' and readers == 0 or mode == 'r' and not wHold)
local status, present = 0, now
local known = late and state == 'w' and ARGV[7]
-- include: lower.lua
if late or not stands and state ~= 'x' and alone then
  local details = ARGV[5]
  if late then now, details = since, asked end -- a minimum counts from the first grant
  if state then drop(id, state, asked) end
  grant(id, token, ttl, details)
  if wHold then keepToken(token) end
  now = present
  expiry, status = ms + ttl, 1
elseif stands then
  status = value == token and 1 or 0
elseif state ~= 'x' and not refusal then
  if state then drop(id, state, asked) end
  if isWaiter(state) then now = since end
  enqueue(id, 0, ARGV[5])
  now = present
  fields[id] = 'd' .. string.sub(fields[id], 2) -- its process need not listen: the next call finds the grant
  if wHold and queued == 1 then want(wHold, writerDetails()) end
  status = 2
end
admit()
store(status > 0 and ttl)
if status == 1 then return { 1, token, expiry - ms, us } end
return { status, 0, 0, us }
