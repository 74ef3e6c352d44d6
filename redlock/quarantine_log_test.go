package redlock_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
)

// docs/operate.md asks to wait for this line before the next master is restarted. The locker is idle meanwhile.
func TestTheEndOfAQuarantineIsLogged(t *testing.T) {
	t.Parallel()
	w := testkit.Start(t, 3)
	addrs := quorumOf(w.Servers)
	short := rwlock.WithTTL(5 * time.Second) // a check that takes longer than a quarantine finds none
	require.NoError(t, redlock.Found(w.Soon(time.Minute), addrs, short))
	w.Servers[1].Kill()
	w.Servers[1].Restart() // empty
	var log testkit.Log
	locker := openOver(t, addrs, short, log.Option())
	const over = "the quarantine of a master is over, and it votes again"
	require.Eventually(t, func() bool { return len(log.Records(over)) == 1 }, testkit.Patience, time.Millisecond)
	require.Len(t, log.Records("is in quarantine"), 1)
	require.Equal(t, slog.LevelInfo, log.Records(over)[0].Level)
	require.Contains(t, log.String(), over+"\" master="+addrs[1])
	w.Servers[0].Kill() // the other two are a quorum
	lease := expect.NoError(locker.Lock(w.Soon(time.Minute), "n")).In(t)
	require.NoError(t, lease.Release(w.Soon(time.Minute)))
}
