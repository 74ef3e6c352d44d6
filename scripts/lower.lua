-- lower.lua: sets back a counter that is more than 1 s ahead of this server's clock. It is from a time when that clock
-- was wrong. Until the clock has caught up no other master agrees on a token with this one. A client whose lease has a
-- token within that bound, from the other masters, names the grant that this master gave it. If that grant of a write
-- stands alone and is the last that was counted, nobody has been counted here since. And while the client knew it, its
-- lease stood: so all tokens that were reported before are below the lease's (cases lowers, release-lowers). Another
-- grant may be a late one, from after a later lease (cases lowers-gone, lowers-unnamed, release-unnamed).
--
-- The counter goes back to 1 s ahead of the clock. A client that does not know that its lease is over may hold a token
-- that it has from here, and from another master later than the lease that is named here. No master gives a token
-- beyond its clock and 1 s (cases lowers-any-time and lowers-to-token).
--
-- KEYS   none
-- ARGV   none; the including script sets value, the token of the client's grant, token, that of its lease, and known,
--        the grant that the client names, or nil where the grant is no write that stands alone, or the master does not
--        vote
-- Reply  none
-- Twice  the second call finds another counter
-- Cost   no command
if known and value == t and value == tonumber(known) and t - us > 1000000 and token - us <= 1000000 then
  wToken, t = t, us + 1000000
  tw = t
end
