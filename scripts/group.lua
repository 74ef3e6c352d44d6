-- group.lua: the common case of release.lua and acquire.lua for several locks in one call: a write hold is released
-- that nobody waits for, a free lock is taken for writing, and a writer is queued behind another one. A member that is
-- not that case is left as it is, and its client sends it again alone. Named owners, blocks and conversions are never
-- that case. A writer that was left would arrive in the queue a round trip later.
--
-- KEYS   the lock of each release, then of each acquire; then marker where there are several masters
-- ARGV   1 as in vote.lua, with the proposal 0; 2 how many releases there are, with an 'a' behind it if the acquires
--        queue by arrival; or for a set of acquires, of a lock each, which of them may run if a writer has one of the
--        locks: 'none', or those 'before' the first such lock;
--        3 TTL ms and 4 details of every acquire; then the hold of each release and of each acquire; then where there
--        are several masters the proposal of each acquire
-- Reply  a list, in the order of the keys: the line that release.lua or acquire.lua answers, or '' for a member that is
--        left; in a set that first lock is refused with its holder, and what may not run is refused without one; an
--        error means that no hold was changed
-- Twice  a member that has run is not the common case any more, so it is left, in a set too
-- Cost   TIME, and as in vote.lua; a release: HMGET HDEL; an acquire: HMGET HSET PEXPIRE, or HMGET and as in
--        behind.lua; a refused set: HMGET
local call, pcall, find, sub, format = redis.call, redis.pcall, string.find, string.sub, string.format
local ARGV, KEYS, replies = ARGV, KEYS, {}
-- include: vote.lua
local order = string.byte(ARGV[2], -1) == 97 and 'a'
local count = tonumber(order and sub(ARGV[2], 1, -2) or ARGV[2]) -- of releases; nil for a set
local members, releases = several and #KEYS - 1 or #KEYS, count or 0
if refusal then
  for i = 1, members do replies[i] = '' end
  return replies
end

-- A key of another type fails its own read alone: an error that ended the script would follow releases that have run,
-- and repeated alone these would find their holds gone. A write fails only if no write came before it: a server refuses
-- a script (out of memory, replicas, a disk) at its first write, or not at all.
local plain = 2 * #clock[1] + 8 -- characters in w after the hold, without a named owner, a block and a token of its own
for i = 1, releases do
  local id, lock, line = ARGV[4 + i], KEYS[i], ''
  local h = pcall('HMGET', lock, 'w', 'n')
  local w = h[1]
  if w and not h[2] and #w - #id == plain and find(w, id, 1, true) == 1 then
    call('HDEL', lock, 'w', 'd', 'e')
    line = '1 0 0'
  end
  replies[i] = line
end
if members == releases then return replies end

local ttl, details = ARGV[3] + 0, ARGV[4]
local d, e = details, nil
if #details > 64 then
  d = sub(details, 1, 64)
  e = sub(details, 65)
end
local usText = #clock[2] == 6 and clock[1] .. clock[2] or format('%s%06d', clock[1], clock[2])

-- A set reads all locks before it writes to one.
local found, first, last, refused = {}, nil, members, nil
for i = 1, count and 0 or members do
  local h = pcall('HMGET', KEYS[i], 'w', 'n', 't')
  found[i] = h
  if h[1] and not first and sub(h[2] or ' 0', -2) == ' 0' then
    local holder, its, since = string.match(h[1], '^(%S+) (%d+) (%d+)')
    local id, left = ARGV[4 + i], holder and its - ms or 0
    local has = holder ~= id and left > 0 and call('HMGET', KEYS[i], 'd', 'e', id)
    if has and not has[3] then -- else acquire.lua says what became of it
      first, last = i, ARGV[2] == 'none' and 0 or i - 1
      refused = format('2 0 %d %s %s %d %d ', left, usText, holder, left, ms - since)
      refused = refused .. (has[1] or '') .. (has[2] or '')
    end
  end
end

local expiry, life = ms + ttl, ttl > 3600000 and ARGV[3] or '3600000'
local times = format(' %d%05d ', math.floor(expiry / 100000), expiry % 100000) .. sub(usText, 1, -4)
local rest = ' ' .. ARGV[3] .. ' ' .. usText
local atOnce = '1 ' .. usText .. rest
for i = releases + 1, members do
  local lock, id, line = KEYS[i], ARGV[4 + i], ''
  local h = found[i] or pcall('HMGET', lock, 'w', 'n', 't')
  local t = tonumber(h[3])
  if i > last and not (h[1] and find(h[1], id, 1, true) == 1) then
    line = i == first and refused or '2 0 0 ' .. usText .. ' - 0 0 -'
  elseif h[1] == false and h[2] == false and (t or not h[3]) then
    local last, block, floor, text = t, nil, floor, nil
    if several then
      text = ARGV[4 + members + i - releases]
      local asked = text + 0
      if asked > us + 1000000 then asked, text = us + 1000000, nil end
      if asked < floor then text = nil else floor = asked end
    end
    -- include: mint.lua
    local token, w = v == us and usText or v == floor and text or format('%.0f', v), id .. times
    -- include: take.lua
    call('PEXPIRE', lock, life)
    line = token == usText and atOnce or '1 ' .. token .. rest
  elseif order and h[1] then
    local own, moves
    -- include: behind.lua
  end
  replies[i] = line
end
return replies
