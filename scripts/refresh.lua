-- refresh.lua: keeps all waiters of one process for a lock alive, and reports a grant after the loss of its message.
-- Without holds in its arguments it only continues the purge and the hand-offs that an earlier call has left.
--
-- KEYS   as in lock.lua
-- ARGV   1 as in vote.lua, 2 the route of the process now (see lock.lua), '-' for the same as before, then the holds,
--        at most 1000; 2 may be left out if no holds follow
-- Reply  {server us, ms until something may expire, more, then for every hold: status, token, ms left};
--        status 0 waiting, 1 granted, 2 unknown here (it was dropped, or this master lost it, or it was sidelined and
--        another upgrade has arrived before it: acquire again);
--        more as in settle.lua
-- Twice  a waiter's lease is set, not summed
-- Cost   HMGET TIME PEXPIREx2 ZADD ZRANGE HGET HSET for any number of waiters, ZRANGE behind readers, per grant as in
--        settle.lua; works while Redis is out of memory
local call, lock, vote = redis.call, KEYS[1], ARGV[1]
local h = call('HMGET', lock, 'w', 'n', 'c', unpack(ARGV, 3))
-- include: vote.lua
-- include: settle.lua
keep(lock, false, 0)
kept = true
for i = 3, #ARGV do
  local id = ARGV[i]
  had[id] = h[i + 1]
  local state, _, place, since, details = parse(recordOf(id))
  if isWaiter(state) then
    local before, after = match(ARGV[2] ~= '-' and details or '', '^(%a %d+ %S+ )%S+( .*)$')
    if before then details = before .. ARGV[2] .. after end -- the process may listen elsewhere now
    await(id, state, place, since, details)
  end
end
purge()
admit(true)

local reply = { us, wake(), stale and 2 or more }
for i = 3, #ARGV do
  local id, n = ARGV[i], #reply
  local status, token, left = 2, 0, 0
  local state, expiry, value = find(id)
  -- A master that has no vote may have restored a grant that had ended.
  if (state == 'w' or state == 'g') and expiry > ms and value > 0 then
    if refusal then status = 0 else status, token, left = 1, value, expiry - ms end
  elseif isWaiter(state) then
    status = 0
  end
  reply[n + 1], reply[n + 2], reply[n + 3] = status, token, left
end
return store(nil, reply)
