-- yield.lua: a hold that has no quorum goes back to its place in the queue if a hold that goes before it waits behind
-- it: an older hold, or an upgrade. So all masters converge on the same holder. If none waits, the hold keeps its grant
-- for another claim. A hold whose client reaches no quorum of masters gives its grant back in any case, and is gone.
--
-- KEYS   as in lock.lua
-- ARGV   1 as in vote.lua, 2 hold, 3 token of the grant, 4 '1': give it back in any case; may be left out
-- Reply  kept {1, token, ms left, server us, first token of a block}; yielded {0, 0, ms until something may expire,
--        server us}, unknown here {2, 0, 0, server us}, 4 and 5 as in vote.lua
-- Twice  a grant that is kept gets a larger token, so the second call finds another grant and leaves it alone, however
--        late it comes, even if another hold waits by then; or it finds the hold waiting
-- Cost   HMGET TIME PEXPIRE ZRANGE HGET; kept: HSET; yielded: ZADD PEXPIRE and a grant as in settle.lua; works while
--        Redis is out of memory
local call, lock, vote, id = redis.call, KEYS[1], ARGV[1], ARGV[2]
local h = call('HMGET', lock, 'w', 'n', 'c', id)
-- include: vote.lua
if refusal then return refusal end
-- include: settle.lua
keep(lock, false, 0)
had[id] = h[4]
purge()
admit()
local state, expiry, token, since, details = find(id)
if state == 'w' or state == 'g' then
  if token == tonumber(ARGV[3]) and expiry > ms then
    local head = queued > 0 and call('ZRANGE', queueKey, 0, 0, 'WITHSCORES') or {}
    drop(id, state, details)
    details = string.gsub(details, '^(%a %d+ [^ ~#]+)~?', '%1~')
    -- An upgrade goes before all other holds, since it never yields. If the head is dead, the lock comes back.
    if ARGV[4] then
      purge()
      admit()
    elseif head[1] and (head[1] < id or head[2] - 0 == 0) then
      enqueue(id, 1, details)
      purge()
      admit()
    else
      local kept, first = mint(details)
      grant(id, kept, math.max(tonumber(match(details, '^%a (%d+)')), expiry - ms), details, first)
    end
  end
elseif isWaiter(state) then
  await(id, state, token, since, details)
  admit()
end
store(0)
state, expiry, token = find(id)
if (state == 'w' or state == 'g') and expiry > ms and token > 0 then
  return { 1, token, expiry - ms, us, state == 'w' and wFirst or nil }
end
if isWaiter(state) then return { 0, 0, wake(), us } end
return { 2, 0, 0, us }
