-- mint.lua: the next token of a lock: one more than the last one, and at least the floor. It sets v, the token, and for
-- a block first: v is then the last token of the block, and first the token that any other hold would get. A block
-- that would run further ahead of this server's clock than a proposal may is smaller, down to one token.
--
-- KEYS   none
-- ARGV   none; the including script sets last, the token that this one has to exceed, or nil; block, how many tokens,
--        or nil; and us and floor as vote.lua does
-- Reply  none
-- Twice  it changes nothing
-- Cost   no command
local v, first = last and last + 1 or us, nil
if v < floor then v = floor end
if block then first, v = v, math.max(math.min(v + block - 1, us + 1000000), v) end
