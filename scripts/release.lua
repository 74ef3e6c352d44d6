-- release.lua: ends a hold, granted or still waiting, and hands the lock to whoever may enter now.
--
-- KEYS   1-4 as in lock.lua, 5 marker where there are several masters
-- ARGV   1 as in vote.lua, 2 hold, 3 tombstone ms: how long an acquire of this hold may still be on its way ('0': its
--        answer is known), 4 '1': more than one may be, so the one that was granted need not be the last
-- Reply  {1, server us, more} it was granted (or had expired, and nobody had noticed), {2, ...} it was waiting,
--        {0, ...} it was gone; server us is 0 where the clock was not read; more 1: refresh, there is more to hand on
-- Twice  the second finds it gone; nobody else's hold is touched
-- Cost   nobody else there: HMGET HDEL; a reader: HMGET ZREM HDEL, with other readers HSET; a hand-off: HMGETx2
--        TIME PEXPIRE ZPOPMIN HGET PUBLISH HSET HDEL; works while Redis is out of memory
local call, lock, id = redis.call, KEYS[1], ARGV[2]
local h = call('HMGET', lock, 'w', 'n', id)
local leaves = ARGV[3] ~= '0' -- a tombstone, if it is due
local checks = ARGV[1] ~= '0' and string.sub(ARGV[1], -1) == '1'

-- Nobody waits, nothing is to be purged or left behind.
if not (checks or leaves and ARGV[4] == '1') then
  local w, own = h[1], h[3]
  if w and not h[2] and string.find(w, id, 1, true) == 1 then
    if string.byte(w, -1) ~= 110 then -- not 'n'
      call('HDEL', lock, 'w', 'd', 'e')
    else
      local has = call('HMGET', lock, 'd', 'e')
      call('HDEL', lock, 'w', 'd', 'e', 'o:' .. string.match(has[1] .. (has[2] or ''), '^%a %d+ (%w+)'))
    end
    return { 1, 0, 0 }
  end
  local readers = not w and own and string.match(h[2] or '', '^(%d+) 0 0$')
  local owner = readers and string.match(own, '^g %d+ %d+ %d+ %a %d+ ([-+%w]%w*)')
  if owner and (owner == id or string.find(owner, '^%p')) then
    call('ZREM', KEYS[2], id)
    if readers == '1' then
      call('HDEL', lock, id, 'n', 'c')
    else
      call('HDEL', lock, id)
      call('HSET', lock, 'n', string.format('%d 0 0', readers - 1))
    end
    return { 1, 0, 0 }
  end
  if not (w or own or h[2] or leaves) then return { 0, 0, 0 } end
end

local clock = call('TIME') -- once: on Redis it moves while the script runs
local us = clock[1] * 1000000 + clock[2]
local ms = (us - us % 1000) / 1000
local own = h[3]
h[3], h[4], h.c = unpack(call('HMGET', lock, 't', 'tw', 'c'))
-- include: vote.lua
-- include: lock.lua
-- include: settle.lua
call('PEXPIRE', lock, 3600000, 'GT') -- accepted when the memory is full, and so is what follows it
had[id] = own
local status, state, details, _ = 0, 'w', nil, nil
if wHold ~= id then state, _, _, _, details = find(id) end
if state and state ~= 'x' then
  status = (state == 'w' or state == 'g') and 1 or 2
  drop(id, state, details)
end
purge()
if leaves and (status == 0 or ARGV[4] == '1') then
  local expiry = ms + ARGV[3]
  aside = aside + call('ZADD', asideKey, int(expiry), id)
  keep(asideKey, aside == 1, ARGV[3] + 0)
  fields[id] = 'x ' .. int(expiry) .. ' 0 ' .. now .. ' -'
end
admit()
store(leaves and ARGV[3] + 0)
return { status, us, more }
