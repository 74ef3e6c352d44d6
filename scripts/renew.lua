-- renew.lua: sets a new expiry for granted holds. It never creates a hold, and two renewals do not add up.
--
-- KEYS   lock of every lease; then marker where there are several masters; in a Cluster as in lock.lua, of one lease
-- ARGV   1 as in vote.lua, then for every lease: hold, TTL ms, token; behind a lease that is alone also its mark: see
--        lock.lua
-- Reply  {server us, then for every lease: 1 renewed, until server's now + TTL; 2 the same, and a hold waits; 0 not
--        held here with that token, or expired; a text in place of 0: who broke it and why; 3 nothing was done, since
--        the client has to read the marker first}
-- Twice  the expiry is set from the server's clock, not summed, and a hold always gets the same mark
-- Cost   TIME, and per lease of a writer HMGET HSET, of a reader HMGET ZSCORE ZADD; PEXPIRE, for a reader twice, with
--        the first lease of a call and once a minute; for a reader also HSET the first time and once a minute; with
--        a mark HMGET for a writer, HSET for a reader; works while Redis is out of memory, and while this master
--        abstains: it extends standing holds, and admits no hold
local call, pcall = redis.call, redis.pcall
-- include: vote.lua
local match, find, cut = string.match, string.find, string.sub
local reply, writes = { us }, false
if changed then
  for i = 2, #ARGV - 2, 3 do reply[#reply + 1] = 3 end
  return reply
end
local ttlText, ttl, life, new, newText -- of the previous lease: mostly all leases of a call have one TTL

-- Formats n as %d does, in parts that fit into a long of 32 bits: %.0f takes twice as long.
local function int(n)
  return string.format('%d%05d', math.floor(n / 100000), n % 100000)
end

-- A key lives for an hour, or as long as the hold if that is longer. If the renewal of a hold does not carry its expiry
-- into another minute, the key has got its hour within the last minute. The first write of the script must be a command
-- that the server accepts when memory is full: then it accepts the commands after it too.
local function keep(lock, zset, expiry)
  if writes and ttl < 3000000 and expiry - expiry % 60000 == new - new % 60000 then return end
  call('PEXPIRE', lock, life, 'GT')
  if zset then pcall('PEXPIRE', lock .. ':h', life, 'GT') end -- fails while the zset migrates, with an hour left
  writes = true
end

local mark, moves = #ARGV % 3 == 2 and '%1#' .. ARGV[#ARGV], KEYS[2] == KEYS[1] and not ARGV[6]

for i = 2, #ARGV - 2, 3 do
  local lease = (i - 2) / 3
  local lock = KEYS[lease + 1]
  local id, token, status = ARGV[i], ARGV[i + 2], 0
  if ARGV[i + 1] ~= ttlText then
    ttlText = ARGV[i + 1]
    ttl = ttlText + 0
    life = ttl > 3600000 and ttlText or '3600000'
    new = ms + ttl
    newText = int(new)
  end
  -- If a key holds another type, that lease alone is gone. Any other error is the error of the whole call.
  local h = pcall('HMGET', lock, 'w', 'n', id, 't')
  if h.err and not find(h.err, 'WRONGTYPE', 1, true) then return h end
  local w, own = h[1], h[3]
  if w and find(w, id, 1, true) == 1 then
    -- Positions and concatenation: a pattern and a format take three times as long, and every lease pays for them.
    local stop = find(w, ' ', #id + 2, true)
    local expiry, rest = cut(w, #id + 2, stop - 1) + 0, cut(w, stop)
    local its = find(rest, '=', 1, true) and match(rest, '=(%d+)$') or h[4]
    if its == token and expiry > ms then
      local joined = h[2] and string.byte(h[2]) ~= 48 -- not '0': the joined holds must be there to be purged
      keep(lock, joined, expiry)
      if mark then
        local parts = call('HMGET', lock, 'd', 'e')
        local details = string.gsub((parts[1] or '') .. (parts[2] or ''), '^(%a %d+ [^ #]+)%S*', mark)
        call('HSET', lock, 'w', id .. ' ' .. newText .. rest, 'd', cut(details, 1, 64), 'e', cut(details, 65))
      else
        call('HSET', lock, 'w', id .. ' ' .. newText .. rest)
      end
      status = 1
    end
  elseif own and match(own, '^g %d+ (%d+)') == token then
    local holds = lock .. ':h'
    local score = pcall('ZSCORE', holds, id)
    if moves and type(score) ~= 'string' then
      return redis.error_reply('TRYAGAIN the keys of this lock are on their way to another node')
    end
    -- Without a score the zset was lost. No other hold has entered, since the record stands, and the hold is not known
    -- to have expired before the time in it. The next script that looks at holds rebuilds it from the records.
    local known = match(own, '^g (%d+)')
    local expiry = score or known
    if type(expiry) == 'string' and expiry - ms > 0 then
      keep(lock, true, expiry + 0)
      if score then call('ZADD', holds, newText, id) end
      if known - new < 0 or mark then -- with some time added, so that not every renewal writes this
        local rest = cut(own, #known + 3)
        if mark then rest = string.gsub(rest, '^( %d+ %d+ %a %d+ [^ #]+)%S*', mark) end
        if known - new < 0 then known = int(ttl < 3000000 and new + 60000 or new) end
        call('HSET', lock, id, 'g ' .. known .. rest)
      end
      status = 1
    end
  end
  if status == 1 and h[2] and find(h[2], '^%d+ [1-9]') then status = 2 end
  if status == 0 then -- only now, so that it costs a renewal nothing
    local mark = own and string.byte(own) == 120 and own or pcall('HGET', lock, 'b:' .. id) -- 'x'
    local expiry, who = match(type(mark) == 'string' and mark or '', '^x (%d+) %d+ %d+ (%d+:.*)$')
    if expiry and expiry - ms > 0 then status = who end
  end
  reply[lease + 2] = status
end
return reply
