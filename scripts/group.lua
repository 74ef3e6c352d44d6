-- group.lua: the common case of release.lua and acquire.lua for several locks in one call: a write hold is released
-- that nobody waits for, a free lock is taken for writing, and a writer is queued behind another one. A member that is
-- not that case is left as it is, and its client sends it again alone. Named owners, blocks and conversions are never
-- that case. A writer that was left would arrive in the queue a round trip later.
--
-- KEYS   the lock of each release, then of each acquire; then marker where there are several masters
-- ARGV   1 as in vote.lua, with the proposal 0; 2 how many releases there are, with an 'a' behind it if the acquires
--        queue by arrival; or for a set of acquires, of a lock each, which of them may run if a writer has one of the
--        locks: 'none', or those 'before' the first such lock;
--        3 details of every acquire; then the hold of each release and the request of each acquire; then where there
--        are several masters the proposal of each acquire
-- Reply  a list, in the order of the keys: the line that release.lua or acquire.lua answers, or '' for a member that is
--        left; in a set that first lock is refused with its holder, and what may not run is refused without one; an
--        error means that no hold was changed
-- Twice  a member that has run is not the common case any more, so it is left, in a set too
-- Cost   TIME, and as in vote.lua, for releases alone of several masters only; a release: HMGET HSET, with details over
--        64 bytes HDEL more; an acquire: HMGET HSET, and PEXPIRE as in free.lua, or HMGET and as in behind.lua; a
--        refused set: HMGET
local call, pcall, find, sub, byte = redis.call, redis.pcall, string.find, string.sub, string.byte
local ARGV, KEYS, replies, vote, runs = ARGV, KEYS, {}, ARGV[1], ARGV[2]
local order = byte(runs, -1) == 97 and 'a'
local count = tonumber(order and sub(runs, 1, -2) or runs) -- of releases; nil for a set
local members, releases = vote ~= '0' and #KEYS - 1 or #KEYS, count or 0

-- A key of another type fails its own read alone: an error that ended the script would follow releases that have run,
-- and repeated alone these would find their holds gone. A write fails only if no write came before it: a server refuses
-- a script (out of memory, replicas, a disk) at its first write, or not at all.
local function release()
  for i = 1, releases do
    local id, lock, line = ARGV[3 + i], KEYS[i], ''
    local w = pcall('HGET', lock, 'w')
    local flag = w and #w == 64 and find(w, id, 30, true) == 30 and byte(w, 64) or 52
    if flag < 52 then -- no marks, and no n
      local free = sub(w, 1, 24)
      if flag ~= 48 then -- not '0'
        call('HDEL', lock, 'd', 'e', 'b') -- accepted when memory is full, and so are the commands after it
        call('HSET', lock, 'w', free)
      elseif pcall('HSET', lock, 'w', free, 'd', '') ~= 0 then -- memory is full
        call('PEXPIRE', lock, '3700000', 'GT')
        call('HSET', lock, 'w', free, 'd', '')
      end
      line = 1
    end
    replies[i] = line
  end
end

if vote == '0' then release() end -- without the clock
if vote == '0' and members == releases then return replies end
-- include: vote.lua
if refusal then
  for i = 1, members do replies[i] = '' end
  return replies
end
if several then release() end

local details, d, e = ARGV[3], ARGV[3], nil
if #details > 64 then d, e = sub(details, 1, 64), sub(details, 65) end

-- A set reads all locks before it writes to one.
local found, first, last, refused = {}, nil, members, nil
for i = 1, count and 0 or members do
  local lock, w = KEYS[i], pcall('HGET', KEYS[i], 'w')
  found[i] = w
  if w and #w == 64 and not first then
    local id, order, own, moves, line, left = sub(ARGV[3 + i], 1, 26), '0', nil, nil, nil, nil
    left = (tonumber(sub(w, 17, 29)) or 0 / 0) + (tonumber(sub(w, 56, 63)) or 0 / 0) - ms
    -- include: behind.lua
    if line then first, last, refused = i, runs == 'none' and 0 or i - 1, line end -- else acquire.lua says why
  end
end

local hundred, now = sub(usText, 1, 8), sub(usText, 1, 13)
for i = releases + 1, members do
  local lock, request, line = KEYS[i], ARGV[3 + i], ''
  local before = found[i]
  if before == nil then before = pcall('HGET', lock, 'w') end -- a table if it fails
  if before and #before % 16 == 9 and byte(before, -1) == 110 and not call('HGET', lock, 'n') then -- 'n'
    before = sub(before, 1, -2) -- the last reader has left it behind
  end
  local kept = before and #before > 23 and find(before, hundred, 17, true) == 17
  if i > last and not (before and #before == 64 and find(before, sub(request, 1, 26), 30, true) == 30) then
    line = i == first and refused or '2 0 0 ' .. usText .. ' - 0 0 -'
  elseif not before or (#before == 24 or #before == 40) and (kept or find(before, '^%d+$')) then
    local floor, text = floor, usText
    if several then
      text = ARGV[3 + members + i - releases]
      local asked = text + 0
      floor = math.max(math.min(asked, us + 1000000), floor)
      if floor ~= asked then text = string.format('%016.0f', floor) end
    end
    local last, block = before and (before < text and 0 or sub(before, 1, 16) + 0), nil
    -- include: mint.lua
    local token = v == us and usText or v == floor and text or string.format('%016.0f', v)
    local w = token .. now .. request
    -- include: take.lua
    line = token == usText and us or token .. ' ' .. usText
    if not kept or byte(request, 28) ~= 32 then -- as in free.lua
      local ttl, life = sub(request, 27, 34) + 0, nil
      -- include: life.lua
      if before then
        call('PEXPIRE', lock, life)
      elseif call('PEXPIRE', lock, life, 'NX') == 0 then
        call('HDEL', lock, 'w', 'd', 'e')
        line = ''
      end
    end
  elseif order and before then
    local w, id, own, moves, left = before, sub(request, 1, 26), nil, nil, nil
    if #w == 64 then left = (tonumber(sub(w, 17, 29)) or 0 / 0) + (tonumber(sub(w, 56, 63)) or 0 / 0) - ms end
    -- include: behind.lua
  end
  replies[i] = line
end
return replies
