-- guard.lua: checks fences and runs an access in one step.
--
-- KEYS   the keys of the access, all of one hash tag, then the register of each fence
-- ARGV   the arguments of the access, then the token of each fence, then their modes, one letter for each fence, then
--        the registers' TTL in ms, 0 for none
--        mode: r reads, w writes, d stores data that was derived from a read
-- Reply  accepted {1, the access's reply or nil}, ended by the condition {1, its reply}, refused {0, the token that
--        refused it, the number of its fence}, refused because a register that is not there may have been evicted
--        {2, maxmemory-policy, the number of its fence}
-- Twice  the checks have the same result: an equal token passes and a register never decreases; a repeated
--        access is as harmless as it is without the guard
-- Cost   for each fence: HMGET; HSET where the register rises; PERSIST, or PEXPIRE where there is a TTL; once: INFO
--        where a register is not there; the condition; the access
--
-- The register is a hash: r and w are the greatest tokens that have read and written. Tokens are below 2^53, so a
-- Lua number is exact; '%.0f' prints it without an exponent.

-- The functions are defined first, so that neither sees the locals below.
local function condition()
-- CONDITION
end

local function access()
-- ACCESS
end

local lean = false -- the access needs no memory

-- Taken from the end, so that KEYS and ARGV are what the access expects.
local ttl, modes = table.remove(ARGV), table.remove(ARGV)
local fences = {}
for i = #modes, 1, -1 do
  fences[i] = {mode = string.sub(modes, i, i), token = table.remove(ARGV), register = table.remove(KEYS)}
end

-- tonumber takes nan and hexadecimal too, and nan is never greater than a token.
local function parse(text)
  local n = string.match(text, '^%d+$') and tonumber(text)
  return n and n < 2 ^ 53 and n
end

-- The longest TTL wins, and no TTL is longer still, as GT takes it too.
local function extend(call, fence)
  if ttl == '0' then return call('PERSIST', fence.register) end
  if fence.known then return call('PEXPIRE', fence.register, ttl, 'GT') end
  return call('PEXPIRE', fence.register, ttl)
end

-- All fences are checked before the access, so that one of them refuses all.
local unknown
for i, fence in ipairs(fences) do
  local seen = redis.call('HMGET', fence.register, 'r', 'w')
  fence.known = seen[1] or seen[2]
  local maxr, maxw, t = parse(seen[1] or '0'), parse(seen[2] or '0'), tonumber(fence.token)
  if not maxr or not maxw then
    return redis.error_reply('WRONGTYPE the register holds something that is no token')
  end

  local limit = maxw
  if fence.mode == 'w' and maxr > maxw then limit = maxr end
  if t < limit then return {0, string.format('%.0f', limit), i} end
  fence.rises = (fence.mode == 'r' and t > maxr) or (fence.mode == 'w' and t > maxw)
  if not fence.known then unknown = unknown or i end
  if redis.acl_check_cmd and not extend(redis.acl_check_cmd, fence) then
    return redis.error_reply('NOPERM the register needs PERSIST, or PEXPIRE for a TTL')
  end
end

-- A missing register is new only if the server cannot have evicted it: the policies volatile-* evict keys with a TTL,
-- the policies allkeys-* evict any key. An embedded server without this section of INFO does not evict.
if unknown then
  local info = redis.pcall('INFO', 'memory')
  if type(info) == 'table' then
    if not string.find(info.err, 'not supported', 1, true) then
      return redis.error_reply('NOPERM a new register needs INFO memory: ' .. info.err)
    end
    info = ''
  end
  local policy = string.match(info, 'maxmemory_policy:([%w-]+)') or 'noeviction'
  local spared = policy == 'noeviction' or (ttl == '0' and string.sub(policy, 1, 9) == 'volatile-')
  if not spared then return {2, policy, unknown} end
end

-- A reply of the condition ends the call here: no register has risen.
local instead = condition()
if instead ~= nil then return {1, instead} end

-- The registers rise before the access, so that nothing older passes whatever the access does: it may fail after it has
-- written, or change the database. A server that is full, or has no right to HSET, refuses before anything is done.
--
-- PERSIST and PEXPIRE need no memory, and after them, as after any command that writes, the server would no longer
-- apply maxmemory. So they come last, except where the access needs no memory either: a full server lets the next
-- holder read, claim and delete.
if lean then extend(redis.call, fences[1]) end
for _, fence in ipairs(fences) do
  if fence.rises then redis.call('HSET', fence.register, fence.mode, fence.token) end
end
local done, reply = pcall(access)
if not lean or unknown and ttl ~= '0' then
  for _, fence in ipairs(fences) do extend(redis.call, fence) end
end

if not done then return {err = type(reply) == 'table' and reply.err or tostring(reply)} end
if type(reply) == 'table' and reply.err then return reply end
return {1, reply or false}
