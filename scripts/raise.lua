-- raise.lua: raises the token of a hold to the token that a quorum agreed on, and the counter with it. It does so only
-- while this very hold stands: raising a counter for a hold that is gone would count a vote that was never kept. While
-- a writer stands, only holds that join or convert it are counted. So its value is the counter, or its own token if one
-- of these holds has a later token, and then it is not raised. A write hold that stands with another write hold is not
-- raised to a token that has been counted already. Several readers are counted at once, and a reader is raised even
-- past another reader's token: readers are not ordered among themselves, and the next writer's token is above all of
-- theirs.
--
-- KEYS   as in lock.lua
-- ARGV   1 as in vote.lua, 2 hold, 3 token
-- Reply  raised {1, token, ms left, server us}, not held here or counted past the token {0, 0, 0, server us}, 4 and 5
--        as in vote.lua, {6, 0, 0, server us} the token is more than 1 s ahead of this server's clock
-- Twice  the second finds the token there
-- Cost   HMGET TIME HSET, for a reader ZSCORE more
local call, lock, vote, id, token = redis.call, KEYS[1], ARGV[1], ARGV[2], ARGV[3]
if #token < 16 then token = string.format('%016.0f', token + 0) end
local h = call('HMGET', lock, 'w', id, 'd', 'e', 'm')
-- include: vote.lua
if refusal then return refusal end
local sub, match, w = string.sub, string.match, h[1] or '000000000000000000000000n' -- its record counts in n
local held, t = #w == 64 and (string.find(w, '%D') or 64) > 29 and match(w, '^ *(%d+)[%da-v]$', 56), sub(w, 1, 16)
local free, marked = match(w, '^(%d+)(n?)$')
if not (held or free and (#free == 24 or #free == 40)) then return redis.error_reply(malformed) end
local flag, tw = held and tonumber(sub(w, 64), 32) or 0, free and #free == 40 and sub(w, 25, 40) or t
local named, kept, its = match(flag % 16 > 7 and h[5] or '- - -', '^(%S+) (%S+) (%S+)$')
if its ~= '-' then tw = its end
local writes = held and sub(w, 30, 55) == id
local expiry, value, since, details = match(h[2] or '', '^g (%d+) (%d+) (%d+) (.*)$')
local bound = expiry
if writes then
  expiry, value = sub(w, 17, 29) + held, kept ~= '-' and kept or t
  details = (h[3] or 'w 0 - @') .. (flag % 2 == 1 and h[4] or '') -- as in lock.lua
elseif value then
  expiry = call('ZSCORE', lock .. ':h', id) or expiry -- as in find
end
if not expiry or expiry - ms <= 0 or value + 0 == 0 or value - token > 0 then return { 0, 0, 0, us } end
if value - token == 0 then return { 1, token + 0, expiry - ms, us } end
if token - us > 1000000 then return { 6, 0, 0, us } end
if writes and kept ~= '-' then return { 0, 0, 0, us } end -- it is being converted: no client waits for a raise

local mode, owner = match(details, '^(%a) %d+ (%w*)')
if mode == 'w' and t - token >= 0 then return { 0, 0, 0, us } end
local larger = t - token > 0 and t or token
if mode == 'w' then tw = larger end
local differs = several and tw ~= larger
local set = { 'w', larger .. sub(w, 17, 24) .. (differs and tw or '') .. (marked or '') }
if held then
  if not writes and larger ~= t and kept == '-' then kept = t end -- w keeps its token
  local marks = named .. ' ' .. kept .. ' ' .. (differs and tw or '-')
  if marks ~= '- - -' or flag % 16 > 7 then
    set[3], set[4] = 'm', marks
    flag = flag % 16 > 7 and flag or flag + 8
  end
  set[2] = larger .. sub(w, 17, 63) .. (flag > 9 and string.char(87 + flag) or flag)
end
if not writes then
  set[#set + 1], set[#set + 2] = id, 'g ' .. bound .. ' ' .. token .. ' ' .. since .. ' ' .. details
end
local counts = owner ~= '' and owner ~= id and call('HGET', lock, 'o:' .. owner) or ''
local before, n, after = match(counts, '^(.*) ' .. value .. ' ' .. mode .. ' (%d+)(.*)$')
if before then
  local others = n ~= '1' and string.format(' %s %s %d', value, mode, n - 1) or ''
  set[#set + 1], set[#set + 2] = 'o:' .. owner, before .. others .. after .. ' ' .. token .. ' ' .. mode .. ' 1'
end
call('HSET', lock, unpack(set))
return { 1, token + 0, expiry - ms, us }
