package scripts_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/wire"
)

// adopt is the request of a hold that replaces a detached one with this token, in its mode.
func adopt(r request, from string, token any) call {
	c := tryAcquire(r.converting(from))
	c.args = append(c.args, texts([]any{token, secret})...)
	return c
}

// detaches renews a hold with a mark, and the token that it was told.
func detaches(status int64, hold string) step {
	by := func(tokens map[string]int64) call { return mark(hold, tokens[ulid(hold)]) }
	return step{call: by, status: status, second: same}
}

// adopts is adopt with the token that the detached hold was told.
func adopts(status int64, r request, from string) step {
	by := func(tokens map[string]int64) call { return adopt(r, from, tokens[ulid(from)]) }
	return step{call: by, status: status, second: same}
}

var adoptions = map[string][]step{
	"write, adopted twice": {
		is(1, acquire(writer("01"))),
		is(0, acquire(writer("05"))),
		is(0, acquire(reader("06"))),
		adopts(3, writer("02"), "01"), // it is not detached
		detaches(2, "01"),
		adopts(1, writer("02"), "01"),
		renews(2, "01"),
		adopts(7, writer("03"), "01"),
		adopts(3, reader("03"), "01"),
		ends(1, releaseAll("01", ttl)),
		adopts(3, writer("03"), "01"),
		renews(2, "02"),
		adopts(3, writer("04"), "02"),
		detaches(2, "02"),
		adopts(1, writer("04"), "02"),
		ends(1, release("02", 0)),
		ends(1, release("04", 0)),
		ends(1, release("05", 0)),
		ends(1, release("06", 0)),
	},
	"read, beside readers and behind a writer": {
		is(1, acquire(reader("01"))),
		is(1, acquire(reader("08"))),
		is(0, acquire(writer("09"))),
		adopts(3, reader("02"), "01"),
		detaches(2, "01"),
		adopts(1, reader("02"), "01"),
		adopts(7, reader("03"), "01"),
		adopts(3, writer("03"), "01"),
		ends(1, release("02", 0)),
		adopts(1, reader("03"), "01"), // the first adopter has given up
		ends(1, releaseAll("01", ttl)),
		is(3, acquire(reader("01"))),
		ends(1, release("08", 0)),
		ends(1, release("03", 0)),
		ends(1, release("09", 0)),
	},
	"an adopter that dies": {
		is(1, acquire(writer("01").lasting(10*ttl))),
		detaches(1, "01"),
		renewsTo(1, "01", 10*ttl),
		adopts(1, writer("02"), "01"),
		after(ttl, adopts(1, writer("03"), "01")),
		is(0, release("02", 0)),
		ends(1, release("01", 0)),
		ends(1, release("03", 0)),
	},
	"an adopter that outlives the detached hold": {
		is(1, acquire(writer("01"))),
		detaches(1, "01"),
		adopts(1, writer("02").lasting(4*ttl), "01"),
		after(ttl, adopts(3, writer("03"), "01")),
		is(2, tryAcquire(writer("03"))),
		renews(1, "02"),
		is(0, release("01", 0)),
		ends(1, release("02", 0)),
	},
}

func init() {
	for name, steps := range adoptions {
		sequences["adopt: "+name] = steps
	}
}

// Only the very hold is adopted: a lock that is free, or in other hands, is not.
func TestOnlyWhatWasDetachedIsAdopted(t *testing.T) {
	everywhere(t, func(e *env) {
		require.EqualValues(e.t, 3, answer(e, adopt(writer("02"), "01", 5)), "free")
		for _, of := range []request{writer("01"), reader("01")} {
			other := writer("02")
			other.mode = of.mode
			detached := func() int64 {
				token := e.run(acquire(of))[1].(int64)
				require.EqualValues(e.t, 1, e.run(mark("01", token))[1])
				return token
			}
			token := e.run(acquire(of))[1].(int64)
			require.EqualValues(e.t, 3, answer(e, adopt(other, "01", token)), "not detached")
			token = detached()
			for _, forged := range []int64{token - 1, token + 1, 0} {
				require.EqualValues(e.t, 3, answer(e, adopt(other, "01", forged)))
			}
			for _, forged := range []string{"", "of another ticket", wire.MarkOf(secret)} {
				c := adopt(other, "01", token)
				c.args[len(c.args)-1] = forged
				require.EqualValues(e.t, 3, answer(e, c), "another secret")
			}
			c := adopt(other, "01", token)
			c.args = c.args[:len(c.args)-1]
			require.EqualValues(e.t, 3, answer(e, c), "no secret")
			require.EqualValues(e.t, 3, answer(e, adopt(other, "03", token)))
			e.run(release("01", 0))
			require.EqualValues(e.t, 3, answer(e, adopt(other, "01", token)), "released")

			token = detached()
			e.run(endHold("01", 0, ttl, ttl))
			require.EqualValues(e.t, 3, answer(e, adopt(other, "01", token)), "kept until its minimum")
			e.run(release("01", 0))

			token = detached()
			e.run(breaks("01"))
			require.Equal(e.t, by, e.run(adopt(other, "01", token))[4], "broken")
			e.run(release("01", 0))
			detached()
			e.run(breaksNow("01"))
			require.Equal(e.t, by, e.run(adopt(other, "01", token))[4], "broken at once")
			e.pass(2 * ttl * time.Millisecond)
			e.run(refresh())
		}
		e.onlyTokensStay()
	})
}

// Over a quorum readers need not have larger tokens than other readers, but an adopter has.
func TestAnAdoptersTokenIsLarger(t *testing.T) {
	everywhere(t, func(e *env) {
		e.newMarker()
		for _, of := range []request{writer("01"), reader("01")} {
			other := writer("02")
			other.mode = of.mode
			first := e.run(e.ahead(900_000).of(acquire(of)))[1].(int64)
			e.run(votes.of(mark("01", first)))
			c := adopt(other, "01", first)
			granted := e.run(votes.of(c))
			require.EqualValues(e.t, 1, granted[0])
			require.Greater(e.t, granted[1], first)
			require.Equal(e.t, granted[1], e.run(votes.of(c))[1], "asked again")
			e.run(release("01", 0))
			e.run(release("02", 0))
		}
	})
}
