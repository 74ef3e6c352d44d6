-- behind.lua: the part of acquire.lua and of group.lua for a lock that another writer holds: sets line if it has queued
-- or refused the hold. What it leaves is for the rest of acquire.lua.
--
-- KEYS   as in lock.lua
-- ARGV   as in acquire.lua
-- Reply  line: queued or refused, in parts of fixed widths, so that nothing is computed: '0' or '2', server us, and of
--        the holder 17-63 of field w, since, and details
-- Twice  the second call finds the record of the hold, and leaves it to acquire.lua
-- Cost   HGET, or HMGET if a hold waits; to queue there HMGET ZADD PEXPIRE HSET, and PEXPIRE if the claim lasts longer
--        than the key; the first in the queue behind a shared hold PUBLISH more
-- While another write hold stands no hold can enter, so the script looks at nothing else, unless aside has members:
-- every acquire purges those. A conversion takes the long path: it may enter, and an upgrade goes to the head of the
-- queue.
local from = string.find(details, '^', 3, true) and string.match(details, '^%a %d+ [^ ^]*%^(%w+)')
local holder = left and left > 0 and left < 100000000 and not own and string.sub(w, 30, 55) -- no TTL has more digits
local flag = holder and string.byte(w, 64) or 0
flag = flag < 58 and flag - 48 or flag - 87
if flag >= 0 and flag < 32 and holder ~= id and not from and order ~= 'h' and (not moves or order == '0') then
  local has = flag == 16 and call('HMGET', lock, 'd', 's', 'n', id)
    or flag > 0 and call('HMGET', lock, 'd', 's', 'n', id, 'e', 'b')
    or order == 'a' and call('HMGET', lock, 'd', 's') or { call('HGET', lock, 'd') } -- without n there is no record
  local text = flag % 2 == 1 and (has[1] or '') .. (has[5] or '') or has[1] or ''
  local n = has[3] or '0 0 0'
  local status = not has[4] and (not has[3] or string.find(n, '^%d+ %d+ 0$')) and '2'
  if status and order == 'a' then
    local place, queue = string.format('%d', (has[2] or 0) + 1), lock .. ':q'
    status = type(redis.pcall('ZADD', queue, place, id)) == 'number' and '0' -- else acquire.lua fails by this too
    if status then
      call('PEXPIRE', queue, '3600000')
      local joined, queued, aside = string.match(n, '^(%d+) (%d+) (%d+)$')
      local now, claim = string.sub(usText, 1, 13), string.match(details, '^%a (%d+)')
      n = joined .. string.format(' %d ', queued + 1) .. aside
      w = flag > 15 and w or string.sub(w, 1, 63) .. string.char(103 + flag) -- it says that there is n
      call('HSET', lock, 'w', w, 'n', n, 's', place, id, 'q ' .. now .. ' ' .. place .. ' ' .. now .. ' ' .. details)
      -- The key lives for an hour from the last renewal of the write hold at least.
      if claim + string.sub(w, 56, 63) - left > 3600000 then call('PEXPIRE', lock, '3700000', 'GT') end
      local letter, channel
      if queued == '0' then letter, channel = string.match(text, '^%a %d+ %+%S+ (%a)(%S+)') end -- of a shared hold
      if letter then redis.pcall(letter == 's' and 'SPUBLISH' or 'PUBLISH', channel, holder .. ' wanted') end
    end
  end
  if status then
    line = status .. usText .. string.sub(w, 17, 63) .. (flag % 4 > 1 and has[6] or string.sub(w, 17, 29)) .. text
  end
end
