package reentrant_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/scratch"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

func TestMain(m *testing.M) {
	scratch.Use("fencelock-reentrant")
	goleak.VerifyTestMain(m)
}

type world = testkit.World

// process is what a process has: a locker with a client of its own, and a reentrant locker.
type process struct {
	*reentrant.Locker
	remote *testkit.Process
}

// start starts a process.
func start(w *world, opts ...rwlock.Option) *process {
	w.Helper()
	remote := w.Process(opts...)
	return &process{reentrant.New(remote.Locker), remote}
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

func (p *process) inspect(name string) rwlock.State {
	p.remote.W.Helper()
	return expect.NoError(p.remote.Inspect(p.remote.W.Ctx, name)).In(p.remote.W)
}

// scriptsSent is how many scripts were called; one that has to be sent whole is called first as well.
func scriptsSent(w *world) int {
	if w.Mini != nil {
		return w.Mini.Calls("EVALSHA")
	}
	return w.Server.Stats()["evalsha"].Calls
}

// everywhere runs a test in fake time and on every server program that is installed.
func everywhere(t *testing.T, test func(w *world)) {
	t.Helper()
	for _, p := range testkit.Places(t) {
		t.Run(p.Name, func(t *testing.T) { p.Enter(t, test) })
	}
}

func inFakeTime(t *testing.T, test func(w *world)) {
	t.Helper()
	testkit.InFakeTime(t, 1, test)
}

// owned returns the test's context with a new owner.
func owned(w *world) (context.Context, reentrant.Owner) {
	w.Helper()
	ctx := reentrant.WithOwner(w.Ctx)
	owner, ok := reentrant.OwnerFrom(ctx)
	require.True(w, ok)
	return ctx, owner
}

// asOwner has run, such as everywhere, run a test of a process with the context of a new owner.
func asOwner(t *testing.T, run func(*testing.T, func(*world)), test func(w *world, p *process, ctx context.Context)) {
	t.Helper()
	run(t, func(w *world) { test(w, start(w), reentrant.WithOwner(w.Ctx)) })
}

// ownedTwice returns the context of a new owner, and that of another process that acts for it.
func ownedTwice(w *world) (ctx, there context.Context) {
	w.Helper()
	ctx, owner := owned(w)
	return ctx, elsewhere(w, owner)
}

// must returns the hold of an acquisition that has to succeed.
func must(w *world) func(*reentrant.Hold, error) *reentrant.Hold {
	return func(h *reentrant.Hold, err error) *reentrant.Hold {
		w.Helper()
		return expect.NoError(h, err).In(w)
	}
}
