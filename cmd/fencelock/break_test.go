package main

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

func TestBreak(t *testing.T) {
	t.Parallel()
	server := testredis.StartBinary(t, binary(t))
	app := application(t, server.Option())
	at := "REDIS_URL=redis://" + server.Addr()
	held := hold(t, app, "orders", rwlock.WithMeta("web-1"))
	ended := make(chan error, 1)
	go func() {
		_, err := app.Lock(t.Context(), "orders", rwlock.WithMeta("web-2"))
		ended <- err
	}()
	var waiter string
	require.Eventually(t, func() bool {
		state, err := app.Inspect(t.Context(), "orders")
		if err != nil || len(state.Waiters) == 0 {
			return false
		}
		waiter = state.Waiters[0].Hold
		return true
	}, testkit.Patience, time.Millisecond)

	got := fencelock(t, at, "break", "orders", "-hold", waiter, "-reason", "wrong version", "-by", "ann", patience)
	require.Zero(t, got.status, got.errs)
	require.Contains(t, got.out, waiter+" is gone")
	var by *rwlock.BrokenError
	require.ErrorAs(t, <-ended, &by)
	require.Equal(t, &rwlock.BrokenError{By: "ann", Why: "wrong version"}, by)

	got = fencelock(t, at, "break", "orders", "-token", "7", "-reason", "none", patience)
	require.Equal(t, statusNo, got.status, got.errs)
	require.Contains(t, got.errs, "has the token 7")
	got = fencelock(t, at, "break", "orders", "-token", held.Token().String(), "-reason", "stuck", "-now", patience)
	require.Zero(t, got.status, got.errs)
	require.Equal(t, statusNo, fencelock(t, at, "inspect", "orders", patience).status)
	require.ErrorIs(t, held.Renew(t.Context()), rwlock.ErrLost)
	require.ErrorAs(t, held.Err(), &by)
	require.Contains(t, by.By, "@")
	got = fencelock(t, at, "break", "orders", "-hold", waiter, "-reason", "again", patience)
	require.Equal(t, statusNo, got.status)

	for _, words := range []string{
		"break orders -reason x", "break orders -hold x", "break orders -hold x -token 1 -reason x",
		"break -reason x -hold x", "break orders -hold x -reason x -for -1s",
		"break orders -hold x -reason x -timeout 20s -addr " + server.Addr(),
	} {
		require.Equal(t, statusUsage, fencelock(t, strings.Fields(words)...).status, words)
	}
	got = fencelock(t, "break", "orders", "-reason", "x")
	require.Contains(t, got.errs, "fencelock inspect orders shows them")
}

// The hold of a process that hears nothing, as one that is down, stands and cannot be renewed. Its token names it.
func TestBreakWaits(t *testing.T) {
	t.Parallel()
	server := testredis.StartBinary(t, binary(t))
	at := "REDIS_URL=redis://" + server.Addr()
	app := application(t, server.Option())
	left := hold(t, app, "report")
	state, err := app.Inspect(t.Context(), "report")
	require.NoError(t, err)
	hold := state.Holders[0].Hold
	for _, by := range [][]string{
		{"-hold", hold}, {"-token", left.Token().String()}, {"-token", left.Token().String()}, // which it keeps
	} {
		ctx, interrupt := context.WithCancel(t.Context())
		var out, errs output
		ended := make(chan int, 1)
		args := append([]string{"break", "report", "-reason", "down", "-addr", server.Addr(), patience}, by...)
		go func() { ended <- run(ctx, args, func(string) string { return "" }, &out, &errs) }()
		waits := regexp.MustCompile(`waiting until its process gives it back, for (59m|1h)\S+ at most; -now`)
		said := func() bool { return waits.MatchString(errs.String()) }
		require.Eventually(t, said, testkit.Patience, time.Millisecond)
		interrupt()
		require.Equal(t, statusFailed, <-ended)
		require.Regexp(t, `it stands until its process gives it back, for (59m|1h)\S+ at most`, errs.String())
	}
	got := fencelock(t, at, "break", "report", "-reason", "down", "-hold", hold, "-for", "1s", patience)
	require.Equal(t, statusFailed, got.status)
	require.Contains(t, got.errs, "it stands until")
	require.Contains(t, fencelock(t, at, "inspect", "report", patience).out, left.Token().String()+", broken")
	require.NoError(t, left.Err())
}

// A section of an RWMutex uses a token of its block, of which the servers show the last.
func TestBreakOfAnRWMutex(t *testing.T) {
	t.Parallel()
	server := testredis.StartBinary(t, binary(t))
	app := application(t, server.Option())
	mu := app.RWMutex("orders")
	require.NoError(t, mu.Lock(t.Context()))
	state, err := app.Inspect(t.Context(), "orders")
	require.NoError(t, err)
	holder := state.Holders[0]
	breaks := func(by ...string) ran {
		words := []string{"break", "orders", "-reason", "stuck", "-addr", server.Addr(), patience}
		return fencelock(t, append(words, by...)...)
	}
	got := breaks("-token", (holder.Token - 1).String())
	require.Equal(t, statusFailed, got.status)
	require.Contains(t, got.errs, "it may be one of hold "+holder.Hold)
	got = breaks("-token", (holder.Token + 1).String())
	require.Equal(t, statusNo, got.status, "no hold has had it")
	got = breaks("-hold", holder.Hold, "-now")
	require.Zero(t, got.status, got.errs)
}
