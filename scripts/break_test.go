package scripts_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/scripts"
)

// by is who breaks holds in these tests, and why.
const by = "3:ops it is stuck"

func breaks(hold string) call    { return on("n", scripts.Break, ulid(hold), 0, claim, by) }
func breaksNow(hold string) call { return on("n", scripts.Break, ulid(hold), 1, claim, by) }

// A hold that is broken stands, and no request of its process brings it back.
func TestABrokenHoldStandsUnrenewed(t *testing.T) {
	everywhere(t, func(e *env) {
		for _, of := range []request{writer("01"), reader("01"), writer("01").by("a"), reader("01").by("a")} {
			token := e.run(acquire(of))[1].(int64)
			reply := e.run(breaks("01"))
			require.EqualValues(e.t, 1, reply[0])
			require.InDelta(e.t, ttl, reply[1], 10_000)
			require.Equal(e.t, by, e.run(renew("01", ttl, token))[1])
			require.Equal(e.t, by, e.run(acquire(of))[4], "asked again")
			require.EqualValues(e.t, 2, e.run(tryAcquire(writer("02")))[0], "it stands")
			require.EqualValues(e.t, 1, e.run(breaks("01"))[0], "again")
			shown := e.run(inspect())[3].([]any)[0].([]any)
			require.Equal(e.t, []any{token, "meta of it", int64(0), int64(1), int64(0)}, shown[7:], "the token that it had")
			require.EqualValues(e.t, 2, e.run(refresh("01"))[3])
			converts := acquire(writer("03").by(of.owner).converting("01"))
			if of.mode == "w" {
				converts = acquire(reader("03").by(of.owner).converting("01"))
			}
			require.EqualValues(e.t, 3, e.run(converts)[0], "nor is it converted")
			require.Equal(e.t, by, e.run(converts)[4])
			if of.owner != "" {
				nested := join(reader("04").by("a"))
				require.EqualValues(e.t, 0, e.run(nested)[0], "nor joined")
			}
			require.EqualValues(e.t, 1, e.run(release("01", 0))[0])
			e.onlyTokensStay()
		}
	})
}

// A hold that is broken and expires does not come back by a late request of its process, and what it does not have any
// more another client gets. The same is true of a hold that a master does not have when it is broken there.
func TestALateRequestOfABrokenHold(t *testing.T) {
	everywhere(t, func(e *env) {
		e.newMarker()
		for i, of := range []request{writer("01"), reader("02"), writer("03"), reader("04")} {
			token := e.run(votes.of(acquire(of)))[1].(int64)
			if gone := i >= 2; gone {
				e.run(votes.of(release(of.hold, 0)))
				require.EqualValues(e.t, 0, e.run(votes.of(breaks(of.hold)))[0])
			} else {
				require.EqualValues(e.t, 1, e.run(votes.of(breaks(of.hold)))[0])
				e.pass(ttl * time.Millisecond)
				require.EqualValues(e.t, 0, e.run(votes.of(breaks("06")))[0], "removes what has expired")
			}
			require.EqualValues(e.t, 0, e.run(votes.of(regain(of, token, 1)))[0])
			require.Equal(e.t, by, e.run(votes.of(renew(of.hold, ttl, token)))[1])
			reply := e.run(votes.of(acquire(of)))
			require.EqualValues(e.t, 3, reply[0])
			require.Equal(e.t, by, reply[4])
			require.EqualValues(e.t, 0, e.run(votes.of(breaks(of.hold)))[0], "gone")
			require.EqualValues(e.t, 1, e.run(votes.of(tryAcquire(writer("05"))))[0])
			e.run(votes.of(release("05", 0)))
			e.pass(2 * claim * time.Millisecond)
			require.EqualValues(e.t, 0, e.run(votes.of(breaks("06")))[0])
			require.NotContains(e.t, e.dump()[lockKey], ulid(of.hold), "the tombstone has expired")
		}
	})
}

// Over a quorum, neither a raise nor a yield nor a regain brings back a hold that is broken.
func TestABrokenHoldOfAQuorum(t *testing.T) {
	everywhere(t, func(e *env) {
		e.newMarker()
		for _, of := range []request{writer("01"), reader("01")} {
			token := e.run(votes.of(acquireByID(of)))[1].(int64)
			e.run(votes.of(breaks("01")))
			require.EqualValues(e.t, 0, e.run(votes.of(raise("01", token+1)))[0])
			require.EqualValues(e.t, 2, e.run(votes.of(yield("01", token)))[0])
			require.EqualValues(e.t, 0, e.run(votes.of(regain(of, token, 1)))[0])
			require.Equal(e.t, by, e.run(votes.of(renew("01", ttl, token)))[1])
			e.run(votes.of(release("01", 0)))
		}
	})
}

// A waiter that is broken leaves the queue, and neither a refresh nor its acquire brings it back.
func TestABrokenWaiter(t *testing.T) {
	everywhere(t, func(e *env) {
		e.run(acquire(writer("01")))
		e.run(acquire(writer("02")))
		require.EqualValues(e.t, 3, e.run(breaks("02"))[0])
		require.EqualValues(e.t, 2, e.run(refresh("02"))[3])
		reply := e.run(acquire(writer("02")))
		require.EqualValues(e.t, 3, reply[0])
		require.Equal(e.t, by, reply[4])
		require.EqualValues(e.t, 0, e.run(breaks("02"))[0], "gone")
		e.run(release("01", 0))
		require.EqualValues(e.t, 1, e.run(acquire(writer("03")))[0])
	})
}

// A joined hold that is broken does not come back when it joins again.
func TestABrokenJoin(t *testing.T) {
	everywhere(t, func(e *env) {
		e.run(acquire(writer("01").by("a")))
		require.EqualValues(e.t, 1, e.run(join(reader("02").by("a")))[0])
		require.EqualValues(e.t, 1, e.run(breaks("02"))[0])
		require.EqualValues(e.t, 3, e.run(join(reader("02").by("a")))[0])
		require.EqualValues(e.t, 1, e.run(join(reader("03").by("a")))[0], "another one may")
	})
}
