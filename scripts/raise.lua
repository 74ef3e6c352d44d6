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
local call, lock, id, token = redis.call, KEYS[1], ARGV[2], ARGV[3]
local h = call('HMGET', lock, 'w', 't', 'tw', id, 'd', 'e')
-- include: vote.lua
if refusal then return refusal end
local writes, kept = h[1] and string.find(h[1], id, 1, true) == 1, nil
local expiry, value, since, details = string.match(h[4] or '', '^g (%d+) (%d+) (%d+) (.*)$')
local bound = expiry
if writes then
  expiry, value, details = string.match(h[1], '^%S+ (%d+)'), h[2], (h[5] or '') .. (h[6] or '')
  kept = string.match(h[1], '=(%d+)')
  value = kept or value
elseif value then
  expiry = call('ZSCORE', lock .. ':h', id) or expiry -- as in find
end
if not expiry or expiry - ms <= 0 or value == '0' or value - token > 0 then return { 0, 0, 0, us } end
if value == token then return { 1, token + 0, expiry - ms, us } end
if token - us > 1000000 then return { 6, 0, 0, us } end
if kept then return { 0, 0, 0, us } end -- it is being converted: no client waits for a raise

local mode, owner = string.match(details, '^(%a) %d+ (%w*)')
local t = h[2] or '0'
if mode == 'w' and t - token >= 0 then return { 0, 0, 0, us } end
local set = { 't', t - token > 0 and t or token }
if mode == 'w' then set[3], set[4] = 'tw', token end
if not writes and h[1] and t - token < 0 and not string.find(h[1], '=', 1, true) then -- w keeps its token
  set[#set + 1], set[#set + 2] = 'w', h[1] .. ' =' .. t
end
if not writes then
  set[#set + 1], set[#set + 2] = id, 'g ' .. bound .. ' ' .. token .. ' ' .. since .. ' ' .. details
end
local counts = owner ~= '' and owner ~= id and call('HGET', lock, 'o:' .. owner) or ''
local before, n, after = string.match(counts, '^(.*) ' .. value .. ' ' .. mode .. ' (%d+)(.*)$')
if before then
  local others = n ~= '1' and string.format(' %s %s %d', value, mode, n - 1) or ''
  set[#set + 1], set[#set + 2] = 'o:' .. owner, before .. others .. after .. ' ' .. token .. ' ' .. mode .. ' 1'
end
call('HSET', lock, unpack(set))
return { 1, token + 0, expiry - ms, us }
