-- inway.lua: what acquire.lua asks and answers where a hold has to wait: which hold is in its way, and its reply.
--
-- KEYS   as in lock.lua
-- ARGV   as in acquire.lua
-- Reply  waiting: queued or refused, as in acquire.lua
-- Twice  it changes nothing
-- Cost   inTheWay: HGET, and ZRANGE HGET if its own hold is the first to expire; nudge: PUBLISH, or behind readers
--        ZRANGE, and HGET and PUBLISH for 16 at most
-- Returns a hold that is in the way of a conversion: hold, expiry, since, details. The hold that it converts is not in
-- the way, nor are holds whose releases are on their way: the hold from which that one was converted, and earlier
-- attempts at this conversion, which were given up.
local function inTheWay()
  local before
  if wHold and (wHold ~= from or readers > 0) then
    local _, _, _, _, its = parse(wHold ~= from and recordOf(from))
    before = converted(its or wHold == from and writerDetails() or '')
    if wHold ~= from and wHold ~= before and converted(writerDetails()) ~= from then
      return { wHold, wExpiry, wSince, writerDetails() }
    end
  end
  local seen, other = { firstHold, firstExpiry }, nil -- the first one is mostly enough
  for _ = 1, 2 do
    local known = 0
    for i = 1, #seen, 2 do
      local state, _, _, since, text = parse(recordOf(seen[i]))
      if state == 'g' then
        known, other = known + 1, { seen[i], tonumber(seen[i + 1]), since, text }
        if seen[i] ~= from and seen[i] ~= before and converted(text) ~= from then return other end
      end
    end
    if known == readers then return nil end
    seen = call('ZRANGE', holdsKey, 0, bound - 1, 'WITHSCORES')
  end
  return other -- too many to look at all of them
end

local other -- the hold in the way of a conversion

local function waiting(status)
  local hold, expiry, since, text = wHold, wExpiry, wSince, wHold and writerDetails()
  if from then
    hold, expiry, since, text = unpack(other or {}, 1, 4)
  elseif not hold and firstHold then
    hold, expiry = firstHold, firstExpiry
    since, text = select(4, parse(recordOf(hold)))
  end
  if not text then return { status, 0, wake(), us, '', 0, 0, '' } end
  return { status, 0, wake(), us, hold, expiry - ms, ms - since, text }
end

-- Asks the holders to yield. A holder that has no quorum yields to this hold if this hold is older or upgrades. The
-- holder's process knows whether it has a quorum. A process that misses the message asks at its next refresh.
local function nudge()
  local function yields(other) return other > id or from and other ~= from end
  if wHold then
    if yields(wHold) then tell(writerDetails(), wHold) end
    return
  end
  for _, other in ipairs(call('ZRANGE', holdsKey, 0, 15)) do
    local _, _, _, _, text = parse(yields(other) and recordOf(other))
    if text then tell(text, other) end
  end
end
