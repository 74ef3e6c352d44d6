-- guard.lua: checks a fence and does an access in one step.
--
-- KEYS   what the access uses, all of one hash tag; behind them the register
-- ARGV   what the access uses; behind them token, mode, register's TTL in ms, 0 for none
--        mode: r reads, w writes, d stores what was derived from a read
-- Reply  accepted {1, the access's reply or nil}, refused {0, the token that refused it}
-- Twice  the check answers the same: an equal token passes and a register never goes back; the access is as
--        harmless twice as it is by itself
-- Cost   HMGET; HSET where a register rises; PEXPIRE where there is a TTL; the access
--
-- The register is a hash: r and w are the greatest tokens that have read and written. Tokens are below 2^53, so a
-- Lua number is exact; '%.0f' prints it without an exponent.

-- Defined first, so that the access does not see the locals below.
local function access()
-- ACCESS
end

-- Taken from the end, so that KEYS and ARGV are what the access expects.
local ttl, mode, token = table.remove(ARGV), table.remove(ARGV), table.remove(ARGV)
local register = table.remove(KEYS)

local seen = redis.call('HMGET', register, 'r', 'w')
local maxr, maxw, t = tonumber(seen[1] or '0'), tonumber(seen[2] or '0'), tonumber(token)
if not maxr or not maxw then
  return redis.error_reply('WRONGTYPE the register holds something that is no token')
end

local limit = maxw
if mode == 'w' and maxr > maxw then limit = maxr end
if t < limit then return {0, string.format('%.0f', limit)} end

if (mode == 'r' and t > maxr) or (mode == 'w' and t > maxw) then
  redis.call('HSET', register, mode, token)
end
if ttl ~= '0' then redis.call('PEXPIRE', register, ttl) end

local reply = access()
if type(reply) == 'table' and reply.err then return reply end
return {1, reply or false}
