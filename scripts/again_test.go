package scripts_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Who converts a hold once more may overtake the release of the attempt before, which was granted and given up, and of
// what the hold was converted from. None of them is in its way, and which is released first does not matter.
func TestAConversionOvertakesReleases(t *testing.T) {
	for name, c := range map[string]struct {
		stand []request // in their order
		again request
		gone  []string
		joins bool // as a reader, when those have gone
	}{
		"a downgrade": {
			[]request{writer("01"), reader("02").converting("01")},
			reader("04").converting("01"),
			[]string{"02", "01"},
			true,
		},
		"a downgrade, released last": {
			[]request{writer("01"), reader("02").converting("01"), reader("03").converting("01")},
			reader("04").converting("01"),
			[]string{"01", "03", "02"},
			true,
		},
		"a downgrade after an upgrade": {
			[]request{reader("01"), writer("02").converting("01"), reader("03").converting("02")},
			reader("04").converting("02"),
			[]string{"03", "01", "02"},
			true,
		},
		"an upgrade": {
			[]request{reader("01"), writer("02").converting("01")},
			writer("04").converting("01"),
			[]string{"02", "01"},
			false,
		},
		"an upgrade, released last": {
			[]request{reader("01"), writer("02").converting("01"), writer("03").converting("01")},
			writer("04").converting("01"),
			[]string{"01", "03", "02"},
			false,
		},
		"an upgrade after a downgrade": {
			[]request{writer("01"), reader("02").converting("01"), writer("03").converting("02")},
			writer("04").converting("02"),
			[]string{"01", "03", "02"},
			false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			everywhere(t, func(e *env) {
				for _, r := range append(c.stand, c.again) {
					require.EqualValues(e.t, 1, answer(e, tryAcquire(r.by("a"))))
				}
				token := e.run(tryAcquire(c.again.by("a")))[1]
				for _, hold := range c.gone {
					require.EqualValues(e.t, 2, answer(e, tryAcquire(writer("05"))))
					require.EqualValues(e.t, 1, answer(e, release(hold, 0)))
				}
				require.EqualValues(e.t, 1, e.run(renew("04", ttl, token))[1])
				require.EqualValues(e.t, 2, answer(e, tryAcquire(writer("05"))))
				require.Equal(e.t, c.joins, answer(e, tryAcquire(reader("06"))) == 1)
				e.run(release("04", 0))
				e.run(release("06", 0))
				e.pass(2 * ttl * time.Millisecond)
				e.run(refresh())
				e.onlyTokensStay()
			})
		})
	}
}

// Who joined the hold stays in the way, and is named: not the hold itself, nor an attempt before.
func TestARefusedConversionNamesWhoJoined(t *testing.T) {
	for name, c := range map[string]struct{ hold, before, again request }{
		"a downgrade": {writer("01"), reader("03").converting("01"), reader("04").converting("01")},
		"an upgrade":  {reader("01"), writer("03").converting("01"), writer("04").converting("01")},
	} {
		t.Run(name, func(t *testing.T) {
			everywhere(t, func(e *env) {
				e.run(acquire(c.hold.by("a").lasting(2 * ttl)))
				require.EqualValues(e.t, 1, answer(e, tryAcquire(c.before.by("a"))))
				require.EqualValues(e.t, 1, answer(e, join(reader("02").by("a").lasting(3*ttl))))
				refused := e.run(tryAcquire(c.again.by("a")))
				require.EqualValues(e.t, 2, refused[0])
				require.Equal(e.t, ulid("02"), refused[5])
			})
		})
	}
}

// A raise of an attempt beside another does not give it a token that the other may have.
func TestARaiseBesideAnotherAttempt(t *testing.T) {
	everywhere(t, func(e *env) {
		e.newMarker()
		token := func(c call) int64 {
			reply := e.run(votes.of(c))
			require.EqualValues(e.t, 1, reply[0])
			return reply[1].(int64)
		}
		token(acquireByID(reader("01")))
		first := token(tryAcquire(writer("02").converting("01")))
		second := token(tryAcquire(writer("03").converting("01")))
		third := token(tryAcquire(writer("04").converting("01")))
		require.Less(e.t, first, second)
		require.Less(e.t, second, third)
		require.EqualValues(e.t, 0, answer(e, votes.of(raise("03", third))))
		require.EqualValues(e.t, 1, answer(e, votes.of(raise("04", third+10))))
	})
}

// What is written down of a write hold stays the same, however often it is converted.
func TestAWriteHoldIsWrittenDownTheSameWay(t *testing.T) {
	everywhere(t, func(e *env) {
		e.run(acquire(writer("01")))
		written := e.field(lockKey, "w")
		for _, hold := range []string{"02", "03"} {
			require.EqualValues(e.t, 1, answer(e, tryAcquire(reader(hold).converting("01"))))
			require.Regexp(e.t, "^"+written+` =\d+$`, e.field(lockKey, "w"))
		}
	})
}
