package reentrant_test

import (
	"context"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

// world is one server and the processes around it.
type world struct {
	t       *testing.T
	connect func() rueidis.Client
	opts    []rwlock.Option // of every process, after its own
	scripts func() int      // how many scripts were called; one that has to be sent whole is called first as well
}

// process is what a process has: a client, a locker and a reentrant locker of its own.
type process struct {
	*reentrant.Locker
	remote *rwlock.Locker
}

func (w *world) process(opts ...rwlock.Option) *process {
	w.t.Helper()
	remote, err := rwlock.New(w.connect(), slices.Concat(opts, w.opts)...)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = remote.Close() })
	return &process{reentrant.New(remote), remote}
}

// take is the acquisition of that mode.
func (p *process) take(ctx context.Context, name string, mode rwlock.Mode, try bool) (*reentrant.Hold, error) {
	switch {
	case mode == rwlock.Write && try:
		return p.TryLock(ctx, name)
	case mode == rwlock.Write:
		return p.Lock(ctx, name)
	case try:
		return p.TryRLock(ctx, name)
	default:
		return p.RLock(ctx, name)
	}
}

func (p *process) inspect(t *testing.T, name string) rwlock.State {
	t.Helper()
	state, err := p.remote.Inspect(t.Context(), name)
	require.NoError(t, err)
	return state
}

// onServers runs a test on miniredis in fake time and on every server program that is installed.
func onServers(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	t.Run("miniredis", func(t *testing.T) {
		inFakeTime(t, func(t *testing.T, w *world, _ *testredis.Mini) { test(t, w) })
	})
	if len(testredis.Binaries()) == 0 {
		t.Run("redis-server", func(t *testing.T) { testredis.Require(t) })
	}
	for _, binary := range testredis.Binaries() {
		t.Run(filepath.Base(binary), func(t *testing.T) {
			srv := testredis.StartBinary(t, binary)
			w := &world{t: t, connect: func() rueidis.Client { return srv.Client(t) }}
			w.opts = []rwlock.Option{testredis.Patience()}
			w.scripts = func() int { return srv.Stats()["evalsha"].Calls }
			test(t, w)
		})
	}
}

// inFakeTime runs a test on miniredis.
func inFakeTime(t *testing.T, test func(t *testing.T, w *world, mini *testredis.Mini)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		mini := testredis.NewMini(t)
		w := &world{t: t, connect: func() rueidis.Client { return mini.Client(t) }}
		w.scripts = func() int { return mini.Calls("EVALSHA") }
		test(t, w, mini)
	})
}

// owned returns the test's context with a new owner.
func owned(t *testing.T) (context.Context, reentrant.Owner) {
	t.Helper()
	ctx := reentrant.WithOwner(t.Context())
	owner, ok := reentrant.OwnerFrom(ctx)
	require.True(t, ok)
	return ctx, owner
}

// must returns the hold of an acquisition that has to succeed.
func must(t *testing.T) func(*reentrant.Hold, error) *reentrant.Hold {
	return func(h *reentrant.Hold, err error) *reentrant.Hold {
		t.Helper()
		require.NoError(t, err)
		return h
	}
}

// awaitWaiters returns when so many acquisitions of this process are queued.
func (p *process) awaitWaiters(t *testing.T, name string, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return len(p.inspect(t, name).Waiters) == n }, time.Minute, time.Millisecond)
}
