package scripts_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/wire"
)

// step is one request of a sequence, what the first run of it must answer, and for how long nothing happens before.
type step struct {
	pause  time.Duration
	call   func(tokens map[string]int64) call
	status int64
	second int64 // the status of the second run, where it differs
}

const same = -1

func is(status int64, c call) step {
	return step{call: func(map[string]int64) call { return c }, status: status, second: same}
}

func ends(status int64, c call) step {
	s := is(status, c)
	s.second = 0
	return s
}

// renews is a renewal with the token that the hold was last told.
func renews(status int64, hold string) step { return renewsTo(status, hold, ttl) }

func renewsTo(status int64, hold string, ttl int) step {
	by := func(tokens map[string]int64) call { return renew(hold, ttl, tokens[ulid(hold)]) }
	return step{call: by, status: status, second: same}
}

func after(d time.Duration, s step) step {
	s.pause = d * time.Millisecond
	return s
}

func quorum(s step) step {
	single := s.call
	s.call = func(tokens map[string]int64) call { return vote{proposal: 100, seen: setID}.of(single(tokens)) }
	return s
}

var deaf = "p" + channel // nobody listens there

// sequences take a lock through its whole life.
var sequences = map[string][]step{
	"broken, given back": {
		is(1, acquire(writer("01").by("a"))),
		is(1, breaks("01")),
		ends(1, release("01", 0)),
		is(1, acquire(reader("02"))),
		is(1, breaks("02")),
		ends(1, release("02", 0)),
	},
	"write, hand-off, gone": {
		is(1, acquire(writer("01"))),
		is(2, tryAcquire(writer("02"))),
		is(2, tryAcquire(reader("02"))),
		is(0, acquire(writer("03"))),
		is(0, acquire(reader("04"))),
		renews(2, "01"),
		renews(0, "03"),
		is(0, refresh("03", "04")),
		ends(1, release("01", 0)),
		is(1, refresh("03")),
		renews(2, "03"),
		renews(0, "01"),
		ends(1, release("03", 0)),
		is(1, acquire(reader("04"))),
		renews(1, "04"),
		ends(1, release("04", 0)),
		is(0, release("04", 0)),
		renews(0, "04"),
		is(2, refresh("04")),
	},
	"write and read holds with a minimum": {
		is(1, acquire(writer("01").by("0A"))),
		is(1, endHold("01", 0, 4*ttl, 4*ttl)),
		renews(0, "01"),
		is(3, acquire(writer("01").by("0A"))),
		is(0, join(writer("02").by("0A"))),
		is(2, tryAcquire(writer("02"))),
		is(0, acquire(reader("03").waiting(20*ttl))),
		after(2*ttl, is(2, tryAcquire(writer("02")))),
		is(2, refresh("01")),
		after(2*ttl, is(1, refresh("03"))),
		is(1, acquire(reader("04").lasting(20*ttl))),
		is(1, endHold("04", 0, 2*ttl, 2*ttl)),
		renews(0, "04"),
		ends(1, release("03", 0)),
		is(2, tryAcquire(writer("05"))),
		after(2*ttl, is(1, tryAcquire(writer("05")))),
		after(ttl/2, ends(1, endHold("05", 0, ttl/4, ttl))),
		is(1, tryAcquire(writer("06"))),
		is(1, endHold("06", 2*ttl, ttl/4, ttl)), // an acquire of it may be on its way for longer
		after(ttl, is(3, acquire(writer("06")))),
		after(ttl, is(1, tryAcquire(writer("07")))),
		ends(1, release("07", 0)),
	},
	"readers and a writer between them": {
		is(1, acquire(reader("01"))),
		is(1, acquire(reader("02").lasting(2*ttl))),
		is(0, acquire(writer("03"))),
		is(0, acquire(reader("04"))),
		is(2, tryAcquire(reader("05"))),
		ends(1, release("02", 0)),
		ends(2, release("03", 0)),
		is(1, refresh("04")),
		renews(1, "04"),
		is(0, acquire(writer("06"))),
		ends(1, release("04", 0)),
		ends(1, release("01", 0)),
		is(1, refresh("06")),
		ends(1, release("06", 0)),
	},
	"expiry": {
		is(1, acquire(writer("01"))),
		is(0, acquire(writer("02").waiting(2*ttl))),
		is(0, acquire(writer("03"))),
		after(ttl, is(1, refresh("02"))),
		renews(0, "01"),
		is(0, release("01", 0)),
		after(claim, renews(1, "02")),
		is(2, refresh("03")),
		after(2*ttl, renews(0, "02")),
		is(1, acquire(reader("04"))),
		after(2*ttl, is(1, acquire(writer("05")))),
		ends(1, release("05", 0)),
	},
	"a renewal sets what it is asked for": {
		is(1, acquire(writer("01").lasting(3*ttl))),
		renewsTo(1, "01", claim),
		after(2*claim, renews(0, "01")),
		is(1, acquire(reader("02").lasting(3*ttl))),
		renewsTo(1, "02", claim),
		after(2*claim, renews(0, "02")),
		is(1, acquire(writer("03"))),
		ends(1, release("03", 0)),
	},
	"tombstones": {
		is(0, release("01", ttl)),
		is(3, acquire(writer("01"))),
		is(3, join(writer("01").by("a"))),
		is(1, acquire(writer("02"))),
		ends(1, releaseAll("02", ttl)),
		is(3, acquire(writer("02"))),
		is(1, acquire(reader("03"))),
		is(0, acquire(writer("04"))),
		ends(2, releaseAll("04", ttl)),
		is(3, acquire(writer("04"))),
		after(2*ttl, is(1, acquire(writer("01")))),
		ends(1, release("01", 0)),
	},
	"nesting": {
		is(0, join(writer("01").by("a"))),
		is(1, acquire(writer("02").by("a"))),
		is(1, join(writer("03").by("a").lasting(2*ttl))),
		is(1, join(reader("04").by("a"))),
		is(0, join(reader("05").by("b"))),
		is(0, acquire(reader("06").by("b"))),
		ends(1, release("02", 0)),
		renews(2, "03"),
		ends(1, release("03", 0)),
		ends(1, release("04", 0)),
		is(1, refresh("06")),
		is(2, join(writer("07").by("b"))),
		is(1, join(reader("08").by("b"))),
		renews(1, "08"),
		ends(1, release("06", 0)),
		ends(1, release("08", 0)),
		is(0, join(reader("09").by("b"))),
	},
	"nesting after a conversion that was given up": {
		is(1, acquire(writer("01").by("a"))),
		is(1, tryAcquire(reader("02").by("a").converting("01"))),
		ends(1, release("02", 0)),
		is(1, join(writer("03").by("a"))),
		is(1, join(reader("04").by("a"))),
		ends(1, release("03", 0)),
		ends(1, release("04", 0)),
		ends(1, release("01", 0)),
		is(1, acquire(reader("05").by("a"))),
		is(1, tryAcquire(writer("06").by("a").converting("05"))),
		ends(1, release("06", 0)),
		is(2, join(writer("07").by("a"))),
		is(1, join(reader("08").by("a"))),
		ends(1, release("08", 0)),
		ends(1, release("05", 0)),
	},
	"nesting in a downgrade": {
		is(1, acquire(writer("01").by("a"))),
		is(1, tryAcquire(reader("02").by("a").converting("01"))),
		is(1, join(reader("03").by("a"))),
		is(2, join(writer("04").by("a"))),
		is(0, join(reader("05").by("b"))),
		ends(1, release("01", 0)),
		is(1, join(reader("06").by("a"))),
		ends(1, release("02", 0)),
		ends(1, release("03", 0)),
		ends(1, release("06", 0)),
	},
	"nesting after a downgrade that was given up once it was joined": {
		is(1, acquire(writer("01").by("a"))),
		is(1, tryAcquire(reader("02").by("a").converting("01"))),
		is(1, join(reader("03").by("a"))),
		ends(1, release("02", 0)),
		ends(1, release("01", 0)),
		is(2, join(writer("04").by("a"))),
		is(1, join(reader("04").by("a"))),
		ends(1, release("03", 0)),
		ends(1, release("04", 0)),
		is(0, join(reader("05").by("a"))),
	},
	"nesting in a downgrade that overtakes the release of the last": {
		is(1, acquire(writer("01").by("a"))),
		is(1, tryAcquire(reader("02").by("a").converting("01"))),
		is(1, tryAcquire(reader("03").by("a").converting("01"))),
		ends(1, release("02", 0)),
		is(2, join(writer("04").by("a"))),
		is(1, join(reader("05").by("a"))),
		ends(1, release("01", 0)),
		is(1, join(reader("06").by("a"))),
		ends(1, release("03", 0)),
		ends(1, release("05", 0)),
		ends(1, release("06", 0)),
	},
	"nesting after a downgrade that has expired": {
		is(1, acquire(writer("01").by("a").lasting(4*ttl))),
		is(1, tryAcquire(reader("02").by("a").converting("01"))),
		after(2*ttl, is(1, join(writer("03").by("a")))),
		ends(1, release("03", 0)),
		ends(1, release("01", 0)),
	},
	"nesting in an upgrade that is given up": {
		is(1, acquire(reader("01").by("a").lasting(3*ttl))),
		is(1, tryAcquire(writer("02").by("a").converting("01"))),
		is(1, join(writer("03").by("a"))),
		ends(1, release("02", 0)),
		is(2, tryAcquire(reader("04").by("b"))),
		is(1, join(writer("05").by("a"))),
		ends(1, release("03", 0)),
		is(2, tryAcquire(reader("04").by("b"))),
		ends(1, release("05", 0)),
		is(1, acquire(reader("04").by("b"))),
		ends(1, release("04", 0)),
		ends(1, release("01", 0)),
	},
	"nesting beside an upgrade that came late": {
		is(1, acquire(reader("01").by("a").lasting(3*ttl))),
		is(1, tryAcquire(writer("02").by("a").converting("01"))),
		is(1, tryAcquire(writer("03").by("a").converting("01"))),
		ends(1, release("03", 0)),
		ends(1, release("01", 0)),
		is(1, join(writer("04").by("a"))),
		ends(1, release("04", 0)),
		ends(1, release("02", 0)),
		is(0, join(writer("05").by("a"))),
	},
	"dead and deaf waiters": {
		is(1, acquire(writer("01"))),
		is(0, acquire(writer("02").listening(deaf))),
		is(0, acquire(reader("03").listening(deaf))),
		is(0, acquire(reader("04"))),
		ends(1, release("01", 0)),
		is(0, acquire(writer("02").listening(deaf))),
		is(1, refresh("04")),
		ends(1, release("04", 0)),
		is(1, refresh("02")),
		is(0, refresh("03")),
		ends(1, release("02", 0)),
		is(1, refresh("03")),
		ends(1, release("03", 0)),
		is(1, acquire(writer("05"))),
		is(0, acquire(writer("06").listening(deaf))),
		ends(1, release("05", 0)),
		ends(2, releaseAll("06", ttl)),
		is(3, acquire(writer("06"))),
	},
	"one of several masters": {
		quorum(is(1, acquireByID(writer("05")))),
		quorum(is(0, acquireByID(writer("03")))),
		quorum(is(0, raise("03", 1))),
		quorum(is(0, raise("05", 1))),
		quorum(step{call: func(tokens map[string]int64) call {
			return raise("05", tokens[ulid("05")]+5)
		}, status: 1, second: same}),
		quorum(step{call: func(tokens map[string]int64) call {
			return yield("05", tokens[ulid("05")])
		}, status: 0, second: same}),
		quorum(is(1, refresh("03"))),
		quorum(step{call: func(tokens map[string]int64) call {
			return yield("03", tokens[ulid("03")])
		}, status: 1, second: same}),
		quorum(is(2, yield("09", 1))),
		quorum(is(1, acquireByID(writer("03")))),
		quorum(renews(2, "03")),
		quorum(ends(1, release("03", 0))),
		quorum(is(1, refresh("05"))),
		quorum(ends(1, release("05", 0))),
		quorum(step{call: func(tokens map[string]int64) call {
			return regain(writer("05"), tokens[ulid("05")], 0)
		}, status: 1, second: same}),
		quorum(is(2, regain(writer("06"), 1, 1))),
		quorum(ends(1, release("05", 0))),
		quorum(is(1, regain(writer("06"), 1, 1))),
		quorum(ends(1, release("06", 0))),
	},
}

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
