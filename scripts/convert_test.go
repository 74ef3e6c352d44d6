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
