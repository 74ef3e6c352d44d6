package scripts_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// answer is the first number of a reply.
func answer(e *env, c call) int64 {
	e.t.Helper()
	return e.run(c)[0].(int64)
}

// Beside others a reader that upgrades waits before all who wait, holds new readers back, and keeps a second one off.
// Whoever gives up still reads.
func TestAReaderUpgradesWhenTheOthersHaveLeft(t *testing.T) {
	everywhere(t, func(e *env) {
		messages := e.subscribe(channel)
		read := e.run(acquire(reader("01")))[1]
		e.run(acquire(reader("02")))
		e.run(acquire(writer("03")))
		upgrade := acquire(writer("04").converting("01"))
		require.EqualValues(e.t, 0, answer(e, upgrade))
		require.EqualValues(e.t, 0, answer(e, upgrade))
		require.EqualValues(e.t, 7, answer(e, acquire(writer("05").converting("02"))), "another one is upgrading")
		require.EqualValues(e.t, 0, answer(e, acquire(reader("06"))))

		e.run(release("04", 0))
		require.EqualValues(e.t, 2, e.run(renew("01", ttl, read))[1], "it still reads")
		require.EqualValues(e.t, 0, answer(e, upgrade))
		require.Empty(e.t, e.heard(messages))
		e.run(release("02", 0))
		require.Len(e.t, e.heard(messages), 1, "a hand-off")
		require.EqualValues(e.t, 1, e.run(refresh("04"))[3])
		e.run(release("04", 0))
		require.EqualValues(e.t, 2, e.run(renew("01", ttl, read))[1], "also where it was granted")
		require.EqualValues(e.t, 0, e.run(refresh("03"))[3], "so nobody has got in")
		e.run(release("01", 0))
		require.EqualValues(e.t, 1, e.run(refresh("03"))[3])
		e.run(release("03", 0))
		e.run(release("06", 0))
		e.pass(2 * ttl * time.Millisecond)
		e.run(refresh())
		e.onlyTokensStay()
	})
}

// A reader's kept grant has a larger token than before, though the client that granted it was ahead: its own client
// counts no other.
func TestAReadersGrantThatIsKeptHasALargerToken(t *testing.T) {
	everywhere(t, func(e *env) {
		e.newMarker()
		token := e.run(e.ahead(500_000).of(acquireByID(reader("01"))))[1].(int64)
		kept := e.run(votes.of(yield("01", token)))
		require.Equal(e.t, []any{int64(1), token + 1}, kept[:2])

		e.run(votes.of(acquireByID(writer("00").listening("pnobody"))))
		again := e.run(votes.of(yield("01", token+1)))
		require.Equal(e.t, []any{int64(1), token + 2}, again[:2], "come back from a dead one")
	})
}

// One that was passed over while another came to upgrade has lost its place to it: it asks anew, and is told so. Else
// each would wait for the other to leave.
func TestAnUpgradeThatWasPassedOverMeetsAnother(t *testing.T) {
	for name, back := range map[string]func(e *env, c call){
		"by a refresh": func(e *env, _ call) { require.EqualValues(e.t, 2, e.run(refresh("03"))[3]) },
		"asked again":  func(e *env, c call) { require.EqualValues(e.t, 7, answer(e, c)) },
	} {
		t.Run(name, func(t *testing.T) {
			everywhere(t, func(e *env) {
				e.run(acquire(reader("01")))
				e.run(acquire(reader("02")))
				upgrade := acquire(writer("03").converting("01").listening("pnobody"))
				require.EqualValues(e.t, 0, answer(e, upgrade))
				e.run(release("02", 0)) // nobody hears of the grant
				require.EqualValues(e.t, 1, answer(e, acquire(reader("04"))))
				require.EqualValues(e.t, 0, answer(e, acquire(writer("05").converting("04"))))
				back(e, upgrade)
				require.EqualValues(e.t, 7, answer(e, upgrade))
				e.run(release("01", 0))
				require.EqualValues(e.t, 1, e.run(refresh("05"))[3])
				e.run(release("04", 0))
				e.run(release("05", 0))
				e.onlyTokensStay()
			})
		})
	}
}

// Where the other one has given up or is dead, or it is an attempt of its own, it comes back to its place.
func TestAnUpgradeThatWasPassedOverComesBack(t *testing.T) {
	everywhere(t, func(e *env) {
		e.run(acquire(reader("01").lasting(4 * ttl)))
		e.run(acquire(reader("02")))
		upgrade := acquire(writer("03").converting("01").waiting(4 * ttl).listening("pnobody"))
		require.EqualValues(e.t, 0, answer(e, upgrade))
		e.run(release("02", 0))
		require.EqualValues(e.t, 1, answer(e, acquire(reader("04").lasting(4*ttl))))
		require.EqualValues(e.t, 0, answer(e, acquire(writer("05").converting("04"))))
		e.pass(claim * time.Millisecond) // 05 is dead
		require.EqualValues(e.t, 0, answer(e, upgrade))
		require.EqualValues(e.t, 0, answer(e, upgrade))
		require.EqualValues(e.t, 7, answer(e, acquire(writer("06").converting("04"))))
		e.run(release("04", 0))
		require.EqualValues(e.t, 1, e.run(refresh("03"))[3])
	})
}

// A raise of a write hold that is being converted, to the token that it has, finds it there.
func TestARaiseOfWhatIsBeingConverted(t *testing.T) {
	everywhere(t, func(e *env) {
		e.newMarker()
		votes := vote{proposal: 100, seen: setID}
		token := e.run(votes.of(acquireByID(writer("01"))))[1].(int64)
		require.EqualValues(e.t, 1, answer(e, votes.of(tryAcquire(reader("02").converting("01")))))
		require.EqualValues(e.t, 1, answer(e, votes.of(raise("01", token))))
		require.EqualValues(e.t, 0, answer(e, votes.of(raise("01", token+10))))
	})
}
