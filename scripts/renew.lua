-- renew.lua: moves the expiry of granted holds; never creates one, never adds up.
--
-- KEYS   lock and holds of every lease in turn, as in lock.lua; then marker where there are several masters
-- ARGV   1 as in vote.lua, then for every lease: hold, TTL ms, token
-- Reply  {server us, then for every lease: 1 renewed, until server's now + TTL; 2 the same, and somebody waits; 0 not
--        held here with that token, or expired}
-- Twice  the expiry is set from the server's clock, not summed
-- Cost   TIME, and per lease of a writer HMGET PEXPIRE HSET, of a reader HMGET ZSCORE PEXPIREx2 ZADD; works while Redis
--        is out of memory, and while this master abstains: nobody enters by it
local call, pcall = redis.call, redis.pcall
local clock = call('TIME') -- once: on Redis it moves while the script runs
local us = clock[1] * 1000000 + clock[2]
local ms = (us - us % 1000) / 1000
-- include: vote.lua
local match, format = string.match, string.format
local reply = { us }
for i = 2, #ARGV, 3 do
  local lease = (i - 2) / 3
  local lock, holds = KEYS[2 * lease + 1], KEYS[2 * lease + 2]
  local id, ttl, token = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local life = ttl - 3600000 > 0 and ttl or '3600000'
  local status = 0
  -- Where a key holds something else, that lease alone is gone. Any other error is everybody's.
  local h = pcall('HMGET', lock, 'w', 'n', id, 't')
  if h.err and not string.find(h.err, 'WRONGTYPE', 1, true) then return h end
  local w, own = h[1], h[3]
  if w and string.find(w, id, 1, true) == 1 then
    local expiry, rest = match(w, '^%S+ (%d+)(.*)$')
    if h[4] == token and expiry - ms > 0 then
      call('PEXPIRE', lock, life, 'GT') -- accepted when the memory is full, and so is what follows it
      local joined = h[2] and string.byte(h[2]) ~= 48 -- '0': they must be there to be purged
      if joined then call('PEXPIRE', holds, life, 'GT') end
      call('HSET', lock, 'w', format('%s %.0f', id, ms + ttl) .. rest)
      status = 1
    end
  elseif own and match(own, '^g %d+ (%d+)') == token then
    local expiry = pcall('ZSCORE', holds, id)
    if type(expiry) == 'string' and expiry - ms > 0 then
      call('PEXPIRE', lock, life, 'GT')
      call('PEXPIRE', holds, life, 'GT')
      call('ZADD', holds, format('%.0f', ms + ttl), id)
      status = 1
    end
  end
  if status == 1 and h[2] and string.find(h[2], '^%d+ [1-9]') then status = 2 end
  reply[lease + 2] = status
end
return reply
