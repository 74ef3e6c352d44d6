package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
)

// New masters are founded once, by the word of whom the command is. doctor founds nothing, and says what to expect.
func TestFound(t *testing.T) {
	t.Parallel()
	w := testkit.Start(t, 3)
	var addrs []string
	for _, s := range w.Servers {
		addrs = append(addrs, s.Addr())
	}
	list := strings.Join(addrs, ",")
	got := exits(t, statusOK, "doctor", "-addr", list, patience)
	require.Contains(t, got.out, "not used for locks so far: the first lock takes 10s")
	require.Zero(t, expect.NoError(w.Servers[0].Command("EXISTS", "fencelock:master")).In(t))

	got = exits(t, statusFailed, "found", "-addr", addrs[0])
	require.Contains(t, got.errs, "found needs all masters of a quorum")
	got = exits(t, statusUsage, "found", "-addr", list, "-quarantine", "1ms")
	require.Contains(t, got.errs, "-quarantine 1ms must be 100ms to 24h0m0s")

	got = exits(t, statusOK, "found", "-addr", list, "-quarantine", "1h", patience)
	require.Contains(t, got.out, "the first lock is granted at once")
	options := []rwlock.Option{rwlock.WithTTL(time.Hour), testredis.Silent(), testredis.Patience()}
	locker := expect.NoError(redlock.Open(addrs, options...)).In(t)
	defer locker.Close()
	lease := expect.NoError(locker.TryLock(w.Soon(time.Minute), "first")).In(t)
	require.NoError(t, lease.Release(w.Soon(time.Minute)))

	got = exits(t, statusFailed, "found", "-addr", list, "-quarantine", "1h", patience)
	require.Contains(t, got.errs, "has a marker: it is not new")
}

// A command that the server's configuration has taken away is found before a hand-off needs it.
func TestDoctorFindsRenamedCommands(t *testing.T) {
	t.Parallel()
	testredis.Require(t)
	server := testredis.Start(t, "--rename-command", "ZPOPMIN", "")
	got := exits(t, statusFailed, "doctor", "-addr", server.Addr(), patience)
	require.Contains(t, got.out, "the server does not know the command zpopmin: locks do not work")
}
