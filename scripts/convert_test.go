package scripts_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// answer is the first number of a reply.
func answer(e *env, c call) int64 {
	e.t.Helper()
	return e.run(c)[0].(int64)
}

// A sole reader is granted the write lock at once, past whoever waits, and keeps its read hold until it gives that
// back.
func TestASoleReaderUpgrades(t *testing.T) {
	everywhere(t, func(e *env) {
		read := e.run(acquire(reader("01")))[1].(int64)
		e.run(acquire(writer("02")))
		e.run(acquire(reader("03")))
		upgrade := acquire(writer("04").converting("01"))
		granted := e.run(upgrade)
		require.EqualValues(e.t, 1, granted[0])
		require.Greater(e.t, granted[1], read)
		require.Equal(e.t, granted[1], e.run(upgrade)[1], "asked again")
		require.EqualValues(e.t, 2, e.run(renew("01", ttl, read))[1], "the read hold stands until it is released")
		require.EqualValues(e.t, 2, e.run(renew("04", ttl, granted[1]))[1])
		e.run(release("01", 0))
		require.EqualValues(e.t, 2, answer(e, tryAcquire(reader("05"))))
		require.EqualValues(e.t, 0, e.run(refresh("02"))[3])
		e.run(release("04", 0))
		require.EqualValues(e.t, 1, e.run(refresh("02"))[3])
		require.Greater(e.t, e.run(refresh("02"))[4], granted[1])
	})
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

// A write hold is converted to a read hold with a larger token, beside which the readers that wait are let in when the
// write hold is given back. Whoever gives up still writes, with its own token.
func TestAWriterDowngrades(t *testing.T) {
	everywhere(t, func(e *env) {
		write := e.run(acquire(writer("01").by("a")))[1].(int64)
		e.run(acquire(reader("02")))
		e.run(acquire(writer("03")))
		downgrade := tryAcquire(reader("04").by("a").converting("01"))
		granted := e.run(downgrade)
		require.EqualValues(e.t, 1, granted[0])
		require.Greater(e.t, granted[1], write)
		require.Equal(e.t, granted[1], e.run(downgrade)[1], "asked again")
		require.EqualValues(e.t, 2, e.run(renew("01", ttl, write))[1], "with its own token")
		require.EqualValues(e.t, 0, e.run(renew("01", ttl, granted[1]))[1])
		require.EqualValues(e.t, 2, e.run(renew("04", ttl, granted[1]))[1])
		require.Equal(e.t, fmt.Sprint(granted[1]), e.field(lockKey, "t"))
		e.run(release("04", 0))
		require.EqualValues(e.t, 2, e.run(renew("01", ttl, write))[1], "given up")
		require.EqualValues(e.t, 1, e.run(acquire(writer("01").by("a")))[0])

		granted = e.run(downgrade)
		e.run(release("01", 0))
		require.EqualValues(e.t, 1, e.run(refresh("02"))[3])
		require.EqualValues(e.t, 0, e.run(refresh("03"))[3])
		require.EqualValues(e.t, 2, e.run(renew("04", ttl, granted[1]))[1])
		e.run(release("02", 0))
		e.run(release("04", 0))
		require.EqualValues(e.t, 1, e.run(refresh("03"))[3])
		e.run(release("03", 0))
		e.pass(2 * ttl * time.Millisecond)
		e.run(refresh())
		e.onlyTokensStay()
	})
}

// Of several masters a reader without a quorum gives way to one that upgrades, however much older it is: elsewhere it
// is that one which is in, and does not give way. So it is asked to.
func TestAnOlderReaderGivesWayToAnUpgrade(t *testing.T) {
	everywhere(t, func(e *env) {
		e.newMarker()
		ask := func(c call) []any { return e.run(votes.of(c)) }
		messages := e.subscribe(channel)
		ask(acquireByID(reader("05")))
		older := ask(acquireByID(reader("01")))[1].(int64)
		kept := ask(yield("01", older))
		require.EqualValues(e.t, 1, kept[0], "nobody waits")
		require.EqualValues(e.t, 0, ask(acquireByID(writer("06").converting("05")))[0])
		require.Equal(e.t, []string{ulid("01")}, e.heard(messages), "not the one that upgrades")

		require.EqualValues(e.t, 0, ask(yield("01", kept[1].(int64)))[0])
		require.Len(e.t, e.heard(messages), 1, "a hand-off")
		require.EqualValues(e.t, 1, e.run(votes.of(refresh("06")))[3])
		require.EqualValues(e.t, 0, e.run(votes.of(refresh("01")))[3])
		ask(release("05", 0))
		ask(release("06", 0))
		require.EqualValues(e.t, 1, e.run(votes.of(refresh("01")))[3])
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

// One that gave way to an upgrade is granted anew, by whoever gives that up, with a larger token too: its client takes
// the message of a token that is not larger for that of the grant that it gave back.
func TestAReaderThatGaveWayIsGrantedALargerToken(t *testing.T) {
	everywhere(t, func(e *env) {
		e.newMarker()
		messages := e.subscribe(channel)
		token := e.run(e.ahead(500_000).of(acquireByID(reader("02"))))[1].(int64)
		e.run(votes.of(acquireByID(reader("00"))))
		e.run(votes.of(acquireByID(reader("03"))))
		e.run(votes.of(acquireByID(writer("01").converting("00"))))
		require.EqualValues(e.t, 0, e.run(votes.of(yield("02", token)))[0])
		_ = e.heard(messages)
		e.run(votes.of(release("01", 0)))
		require.Contains(e.t, e.heard(messages)[0], fmt.Sprintf("%s %d ", ulid("02"), token+1))
		kept := e.run(votes.of(yield("02", token+1)))
		require.Equal(e.t, []any{int64(1), token + 2}, kept[:2])
	})
}

// Beside a write hold without a quorum, and behind a dead one that upgrades, it is the same.
func TestWhoGivesWayToAnUpgrade(t *testing.T) {
	everywhere(t, func(e *env) {
		e.newMarker()
		ask := func(c call) []any { return e.run(votes.of(c)) }
		messages := e.subscribe(channel)
		older := ask(acquireByID(writer("01")))[1].(int64)
		require.EqualValues(e.t, 0, ask(acquireByID(writer("06").converting("05")))[0], "05 stands elsewhere")
		require.Equal(e.t, []string{ulid("01")}, e.heard(messages))
		require.EqualValues(e.t, 0, ask(yield("01", older))[0])
		require.EqualValues(e.t, 1, e.run(votes.of(refresh("06")))[3])
		ask(release("06", 0))
		token := ask(acquireByID(writer("01")))[1].(int64)

		ask(acquireByID(writer("07").converting("05").listening("pnobody")))
		kept := ask(yield("01", token))
		require.EqualValues(e.t, 1, kept[0], "nobody hears of the grant")
		require.Greater(e.t, kept[1], token)
	})
}

// Who upgrades once more does not meet its own attempt before, whose release is on its way, as a rival.
func TestAnUpgradeOvertakesTheReleaseOfTheLast(t *testing.T) {
	everywhere(t, func(e *env) {
		e.run(acquire(reader("01")))
		e.run(acquire(reader("02")))
		require.EqualValues(e.t, 0, answer(e, acquire(writer("03").converting("01"))))
		refused := e.run(tryAcquire(writer("04").converting("01")))
		require.EqualValues(e.t, 2, refused[0], "the ordinary refusal")
		require.Equal(e.t, ulid("02"), refused[4], "by the one in the way")
		require.EqualValues(e.t, 0, answer(e, acquire(writer("05").converting("01"))))
		require.EqualValues(e.t, 7, answer(e, acquire(writer("06").converting("02"))), "another is one")
		e.run(release("02", 0))
		require.EqualValues(e.t, 1, e.run(refresh("03"))[3], "in their order")
		require.EqualValues(e.t, 0, e.run(refresh("05"))[3])
		e.run(release("03", 0))
		require.EqualValues(e.t, 1, e.run(refresh("05"))[3])
		e.run(release("01", 0))
		e.run(release("05", 0))
		e.pass(2 * ttl * time.Millisecond)
		e.run(refresh())
		e.onlyTokensStay()
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

// A second attempt at an upgrade is behind the first one, so the reply says when the first one expires.
func TestASecondAttemptAtAnUpgradeIsToldWhenTheFirstExpires(t *testing.T) {
	everywhere(t, func(e *env) {
		e.run(acquire(reader("01")))
		e.run(acquire(reader("02")))
		upgrade := writer("03").converting("01").waiting(claim / 2)
		require.EqualValues(e.t, 0, answer(e, acquire(upgrade)))
		upgrade.hold, upgrade.claim = "04", claim
		require.LessOrEqual(e.t, e.run(acquire(upgrade))[2], int64(claim/2))
		upgrade.hold = "00"
		require.Greater(e.t, e.run(acquire(upgrade))[2], int64(claim/2), "by their ids this one is the first")
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
