-- adopt.lua: the part of acquire.lua that takes over the hold of another process.
--
-- KEYS   as in lock.lua
-- ARGV   as in acquire.lua
-- Reply  granted, 3 or 7, as in acquire.lua
-- Twice  the second call finds the new hold, and does not come here
-- Cost   HGETx2 ZADD PEXPIRE HSET, or for a reader ZSCORE more
-- The hold is granted beside the detached one, with a larger token, and its client then releases that one. It is
-- compatible with all that stands: it is in the mode of the detached hold, which stands and names its one adopter.
local function adopt()
  local state, expiry, token, since, details = find(from)
  if state == 'x' and expiry > ms then return { 3, 0, 0, us, #details > 1 and details or nil } end
  local stands = (state == 'w' or state == 'g') and expiry > ms and string.sub(details, 1, 1) == mode
  if not stands or token ~= 0 and token ~= ARGV[5] + 0 then return { 3, 0, 0, us } end
  if token == 0 then return { 3, 0, 0, us, brokenBy(from) } end
  if match(details, '^%a %d+ [^ #]+#(%x+)') ~= redis.sha1hex(ARGV[6] or '') then return { 3, 0, 0, us } end
  local other, its, bound = match(details, '^%a %d+ %S+ @(%w+)'), nil, nil
  if other then its, bound = find(other) end
  if (its == 'w' or its == 'g') and bound > ms then return { 7, 0, 0, us } end
  if not reachable(holdsKey, readers) then return redis.error_reply(moving) end
  floor = math.max(floor, token + 1) -- of several masters, mint need not pass the token of a reader
  now = since -- a minimum counts from the first grant
  local larger = mint(ARGV[2])
  grant(id, larger, ttl, ARGV[2])
  details = string.gsub(details, '^(%a %d+ %S+) %S+', '%1 @' .. id)
  if state == 'w' then
    wDetails, rewritten = details, true
  else
    fields[from] = match(recordOf(from), '^g %d+ ') .. tokenText(token) .. ' ' .. since .. ' ' .. details
  end
  return { 1, larger, ttl, us }
end
