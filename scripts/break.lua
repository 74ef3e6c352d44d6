-- break.lua: takes a hold away from its process, for an operator. A granted hold cannot be renewed any more. It stands
-- until its process gives it back or until it expires, so exclusion is kept as its process was promised. At once, it
-- ends here, while its process may still trust in it. So does a hold that its process has released, and that stands
-- until its minimum. A waiter leaves the queue and cannot come back. A hold that this master does not have may have
-- been lost here, and its process may be about to ask for it again, so it gets a tombstone too.
--
-- KEYS   as in lock.lua
-- ARGV   1 as in vote.lua, 2 hold, 3 '1' at once, 4 ms for which requests of the hold may still be on their way, 5 who
--        breaks it and why, for its process: 'number:text', without a meaning to the scripts
-- Reply  {0, 0, server us, more} the hold is gone, {1, ms left, ...} it cannot be renewed any more, {2, 0, ...} it was
--        granted, and has ended, {3, 0, ...} it was waiting, and has ended; more as in settle.lua
-- Twice  a hold that cannot be renewed is reported again, with the text of the first call; one that has ended is gone
-- Cost   HMGET TIME ZADD PEXPIREx2 HSET; a granted hold: PUBLISH more, and as in lock.lua and settle.lua; works while
--        Redis is out of memory
local call, lock, vote, id = redis.call, KEYS[1], ARGV[1], ARGV[2]
local h = call('HMGET', lock, 'w', 'n', 'c', id)
-- include: vote.lua
-- include: settle.lua
if not reachable(asideKey, aside) then return redis.error_reply(moving) end
keep(lock, false, 0)
kept, had[id] = true, h[4]
local atOnce, life = ARGV[3] == '1', ARGV[4] + 0

-- Leaves a record aside that a late request of the hold finds. It has the token that a hold which stands had.
local function leave(field, token)
  call('ZADD', asideKey, int(ms + life), field)
  aside = aside + 1
  keep(asideKey, aside < 2, life)
  fields[field] = 'x ' .. int(ms + life) .. ' ' .. int(token or 0) .. ' ' .. now .. ' ' .. ARGV[5]
end

purge()
local status, left = 0, 0
local state, expiry, token, since, details = find(id)
local stands = (state == 'w' or state == 'g') and expiry > ms
if stands and not (atOnce or match(details, '^%a %d+ %S+ (%S+)') == '-') then -- '-': its process has released it
  status, left = 1, expiry - ms
  if token > 0 then
    life = life + left
    if state == 'w' then
      if wNamed then uncount(id, details, tokenText(token)) end
      wToken = 0
    else
      local bound = match(recordOf(id), '^g (%d+)')
      uncount(id, details, tokenText(token))
      fields[id] = 'g ' .. bound .. ' 0 ' .. since .. ' ' .. details
    end
    leave('b:' .. id, token)
  end
elseif state ~= 'x' then -- a request of it may be on its way
  status = stands and 2 or isWaiter(state) and 3 or 0
  if status > 0 then drop(id, state, details) end
  leave(id)
end
if status > 0 then tell(details, id .. ' broken ' .. ARGV[5]) end
purge() -- a hold that joined or converts the write hold takes its place
admit()
return store(life, { status, left, us, stale and 2 or more })
