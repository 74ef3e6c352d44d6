-- release.lua: ends a hold, granted or still waiting, and hands the lock to the waiters that may enter now. A hold with
-- a minimum goes on to stand as ended until then.
--
-- KEYS   as in lock.lua
-- ARGV   1 hold, 2 vote: as in vote.lua, 3 tombstone ms: how long an acquire of this hold may still be on its way ('0':
--        its answer is known), 4 '1': several acquires of it may be, or another call that brings it back, so the one
--        that has come need not be the last, '2': one, which its client may send again by itself; each may be left out
--        with what follows, for '0'; then other holds of this client, at most 1000, with known answers: a crowd that
--        gives up; or 'least rest': a granted hold stands until least ms after its grant, and for at most rest ms from
--        now, but with '1' for as long as ARGV 3 at least; or 'least rest token grant', with rest 0 for a hold that
--        does not stand: the token of the lease, and the larger one that the client knows from this master while it
--        trusts in the lease
-- Reply  of the first hold: {1, server us, more} it was granted (or had expired and was not purged), {2, ...} it
--        was waiting, {0, ...} it was gone; server us is 0 if the clock was not read; more as in settle.lua; then who
--        broke it and why, if an operator did; or 1 alone, for {1, 0, 0}
-- Twice  the second call finds the hold gone, or ended; no other hold is touched
-- Cost   no other hold: HGET HSET, for a named owner and other marks HMGET HDEL more; a reader: HGET HMGET ZREM HDEL,
--        with other readers HSET; a hand-off to a writer: HGETx2 TIME ZPOPMIN HGET PUBLISH HSET HDEL; else as in
--        lock.lua and settle.lua, ZREM for all that were waiting, and for each other hold its drop; with a minimum HSET
--        PEXPIRE, for a reader ZADD PEXPIRE more; works while Redis is out of memory
local call, lock, id, vote = redis.call, KEYS[1], ARGV[1], ARGV[2] or '0'
local w, leaves = call('HGET', lock, 'w'), ARGV[3] and ARGV[3] ~= '0' -- a tombstone, if it is due
local held = w and #w == 64 and string.find(w, id, 30, true) == 30
local flag = w and string.byte(w, -1) or 255
local n, own
if flag > 102 then -- there may be n; with it there may be a record of the hold, unless it is in w
  if held then n = call('HGET', lock, 'n') else n, own = unpack(call('HMGET', lock, 'n', id)) end
end

-- No hold waits, and nothing is to be purged or left behind. A vote that checks ends with '1'.
if not (ARGV[5] or leaves and ARGV[4] == '1') and (vote == '0' or string.byte(vote, -1) ~= 49) then
  if held and not n then
    local free = string.sub(w, 1, 24)
    if flag == 48 or flag == 52 then -- '0', or '4' with a block
      if redis.pcall('HSET', lock, 'w', free, 'd', '') ~= 0 then -- memory is full
        call('PEXPIRE', lock, '3700000', 'GT') -- accepted, and so is what follows
        call('HSET', lock, 'w', free, 'd', '')
      end
    else
      local marks, owner, largest = (tonumber(string.sub(w, 64), 32) or 0) % 16 > 7, nil, nil
      local has = marks and call('HMGET', lock, 'm', 'd', 'e') or {}
      if has[1] then
        owner, largest = string.match(has[1], '^(.) %S+ (%d*)')
        owner = owner == 'n' and 'o:' .. (string.match((has[2] or '') .. (has[3] or ''), '^%a %d+ (%w+)') or '')
      end
      call('HDEL', lock, 'd', 'e', 'b', 'f', 'm', owner or 'b') -- accepted when memory is full
      call('HSET', lock, 'w', free .. (largest or ''))
    end
    return 1
  end
  local alone = n == '1 0 0'
  local readers = own and KEYS[2] ~= lock and not (w and #w == 64)
    and (alone or string.match(n or '', '^(%d+) 0 0$'))
  if readers and string.byte(own) == 103 and string.find(own, '^r %d+ [-+]', 48) then -- 'g', and no name of an owner
    call('ZREM', lock .. ':h', id)
    if alone then
      call('HDEL', lock, id, 'n', 'c')
    else
      call('HDEL', lock, id)
      call('HSET', lock, 'n', string.format('%d 0 0', readers - 1))
    end
    return 1
  end
  if not (n or leaves) and (not w or #w == 24 or #w == 40 or #w == 25 or #w == 41) then return '0 0 0' end
end

-- include: vote.lua

-- Only waiters are left, and the first is a writer that is its own owner: it replaces the writer that leaves. If its
-- message reaches no process, or the case is another one, the rest of the script goes on with the waiter that was taken
-- out of the queue.
local head
local queued = held and KEYS[2] ~= lock and not (several or ARGV[5] or leaves and ARGV[4] == '1')
  and string.match(n or '', '^0 (%d+) 0$')
if queued and flag < 111 then -- 'o': no marks
  head = call('ZPOPMIN', lock .. ':q')[1]
  local format, sub, match = string.format, string.sub, string.match
  local refreshed, details, claim, block, letter, channel =
    match(head and call('HGET', lock, head) or '', '^q (%d+) %d+ %d+ (w (%d+) [-+](%d*) (%a)(%S+).*)$')
  local kept, odd = sub(w, 17, 24) == sub(usText, 1, 8), flag % 2 == 0 -- 'h': it has details in e
  local last = kept and w < usText and 0 or tonumber(sub(w, 1, 16)) -- as in free.lua
  if last and refreshed and refreshed + claim - ms > 0 then
    local rest, d, e = queued ~= '1' and format('0 %d 0', queued - 1), details, nil
    if block == '' then block = nil end -- else of a shared hold
    -- include: mint.lua
    local token = v == us and usText or format('%016.0f', v)
    -- include: process.lua
    local message = head .. ' ' .. token .. ' ' .. usText .. ' ' .. claim .. ' ' .. process
    first = first and format('%016.0f', first)
    if first then message = message .. ' ' .. first .. ' ' .. match(rest or ' 0', ' (%d+)') end
    local heard = redis.pcall(letter == 's' and 'SPUBLISH' or 'PUBLISH', channel, message)
    if heard ~= 0 or letter == 'b' then
      if #d > 64 then d, e = sub(details, 1, 64), sub(details, 65) end
      flag = (first and 4 or 0) + (e and 1 or 0)
      flag = rest and string.char(103 + flag) or flag
      w = token .. sub(usText, 1, 13) .. head .. sub('       ' .. claim, -8) .. flag
      call('HSET', lock, 'w', w, 'd', d, rest and 'n' or 'd', rest or d)
      if first then call('HSET', lock, 'f', first) end
      if e then call('HSET', lock, 'e', e) elseif odd then call('HDEL', lock, 'e') end
      call('HDEL', lock, head, rest and 'b' or 'n') -- b means nothing now
      if not kept then call('PEXPIRE', lock, '3700000', 'GT') end
      return '1 ' .. usText .. ' 0'
    end
  end
end

local has = call('HMGET', lock, 'c', id, unpack(ARGV, 5))
local h = { w, n or false, has[1] }
-- include: settle.lua
taken = head
if leaves and not reachable(asideKey, aside) then return redis.error_reply(moving) end
keep(lock, false, 0)
kept, had[id] = true, has[2]

local leavers, again = {}, (ARGV[4] or '0') ~= '0'

local function breaker()
  local state, _, token, _, details = parse(wHold ~= id and recordOf(id))
  if state == 'x' then return match(details, '^%d+:.*') end
  if wHold == id and wToken == 0 or state == 'g' and token == '0' then return brokenBy(id) end
end

-- Drops a hold. Returns what it was, as in the reply.
local function dropHold(hold)
  local state, details, _ = 'w', nil, nil
  if wHold ~= hold then state, _, _, _, details = find(hold) end
  if not state or state == 'x' then return 0 end
  drop(hold, state, details, leavers)
  if state == 'w' or state == 'g' then return 1 end
  -- Notifies again: the process of the shared hold took the first notification for its own upgrade.
  if converted(details) and h[3] then fields.c = '0' end
  return 2
end

-- Keeps a granted hold as ended until its minimum. Returns false if it has none left. While another acquire of the hold
-- may be on its way, the ended hold stands in place of a tombstone: the one that has brought the hold about has come.
local function keepEnded(least, rest)
  local state, _, token, since, details = find(id)
  if state ~= 'w' and state ~= 'g' then return false end
  if token == 0 then return match(details, '^%a %d+ %S+ (%S+)') == '-' end -- one that is broken goes
  local expiry = math.max(math.min(since + least, ms + rest), leaves and ARGV[4] == '1' and ms + ARGV[3] or 0)
  if expiry <= ms then return false end
  uncount(id, details, tokenText(token))
  details = string.gsub(details, '^(%a %d+ %S+) %S+', '%1 -')
  if state == 'w' then
    setWriter(id, expiry, since, details)
    keepToken(0)
  else
    call('ZADD', holdsKey, int(expiry), id)
    keep(holdsKey, false, expiry - ms)
    fields[id] = 'g ' .. int(expiry) .. ' 0 ' .. since .. ' ' .. details
    if h[3] then fields.c = '0' end -- the order of the expiries has changed
  end
  keep(lock, false, expiry - ms)
  return true
end

local who = breaker()
local least, rest, token, known = match(ARGV[5] or '', '^(%d+) (%d+) ?(%d*) ?(%d*)$')
if least then purge() end -- before a member is added
local value = wHold == id and readers == 0 and not refusal and not wToken and t
known = value and known
-- include: lower.lua
local ended = least and rest ~= '0' and keepEnded(least, rest)
local status = ended and 1 or dropHold(id)
for i = 5, least and 0 or #ARGV do
  had[ARGV[i]] = has[i - 2]
  dropHold(ARGV[i])
end
if leavers[1] then call('ZREM', queueKey, unpack(leavers)) end
purge()
if leaves and not ended and (status == 0 or ARGV[4] == '1') then
  local expiry = ms + ARGV[3]
  call('ZADD', asideKey, int(expiry), id)
  if not recordOf(id) then aside = aside + 1 end
  keep(asideKey, aside < 2, ARGV[3] + 0)
  local stays = again or match(recordOf(id) or '', '^x .*-$')
  fields[id] = 'x ' .. int(expiry) .. ' 0 ' .. now .. ' ' .. (who or stays and '-' or '.')
end
admit()
return store(leaves and ARGV[3] + 0, { status, us, stale and 2 or more, who })
