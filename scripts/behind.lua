-- behind.lua: the part of acquire.lua and of group.lua for a lock that another writer holds: sets line if it has queued
-- or refused the hold. What it leaves is for the rest of acquire.lua.
--
-- KEYS   as in lock.lua
-- ARGV   as in acquire.lua
-- Reply  line: queued or refused, as in acquire.lua
-- Twice  the second call finds the record of the hold, and leaves it to acquire.lua
-- Cost   HMGET; to queue there ZADD PEXPIRE HSET PEXPIRE more; the first in the queue behind a shared hold PUBLISH more
-- While another write hold stands no hold can enter, so the script looks at nothing else, unless aside has members:
-- every acquire purges those. A conversion takes the long path: it may enter, and an upgrade goes to the head of the
-- queue.
local from = string.find(details, '^', 3, true) and string.match(details, '^%a %d+ [^ ^]*%^(%w+)')
local w, holder, flag = not own and h[1], nil, nil
if w and #w == 64 then holder, flag = string.sub(w, 30, 55), tonumber(string.sub(w, 64), 16) or 0 end
local expiry = holder and (tonumber(string.sub(w, 17, 29)) or 0) + (tonumber(string.sub(w, 56, 63)) or 0)
local quiet = string.sub(h[2] or ' 0', -2) == ' 0' and (not moves or order == '0')
local behind = holder and holder ~= id and not from and expiry - ms > 0 and order ~= 'h' and quiet
local has = behind and call('HMGET', lock, 'd', 'e', 's', id, 'b')
if has and not has[4] then
  local format, text, queue, status = string.format, has[1] or '', lock .. ':q', '2'
  local since = flag % 4 > 1 and has[5] or string.sub(w, 17, 29)
  if flag % 2 == 1 then text = text .. (has[2] or '') end
  if order == 'a' then
    local lease, place = ms + string.match(details, '^%a (%d+)'), format('%d', (has[3] or 0) + 1)
    status = type(redis.pcall('ZADD', queue, place, id)) == 'number' and '0' -- else acquire.lua fails by this too
    if status then
      call('PEXPIRE', queue, '3600000')
      local now = string.sub(usText, 1, 13)
      local leaseText = format('%d%05d', math.floor(lease / 100000), lease % 100000)
      local joined, queued, aside = string.match(h[2] or '0 0 0', '^(%d+) (%d+) (%d+)$')
      local n = format('%s %d %s', joined, queued + 1, aside)
      call('HSET', lock, 'n', n, 's', place, id, 'q ' .. leaseText .. ' ' .. place .. ' ' .. now .. ' ' .. details)
      call('PEXPIRE', lock, '3700000', 'GT')
      local letter, channel
      if queued == '0' then letter, channel = string.match(text, '^%a %d+ %+%S+ (%a)(%S+)') end -- of a shared hold
      if letter then redis.pcall(letter == 's' and 'SPUBLISH' or 'PUBLISH', channel, holder .. ' wanted') end
    end
  end
  if status then
    local left = expiry - ms
    line = format('%s 0 %d %s %s %d %d ', status, left, usText, holder, left, ms - since) .. text
  end
end
