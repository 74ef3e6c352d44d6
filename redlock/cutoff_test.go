package redlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

// A client that reaches fewer masters than a quorum waits for "x" in each of these ways. Each returns a function that
// gives back what it was granted.
var waysToWait = map[string]func(ctx context.Context, p *process) (func() error, error){
	"write": func(ctx context.Context, p *process) (func() error, error) {
		lease, err := p.Lock(ctx, "x")
		return func() error { return lease.Release(p.W.Ctx) }, err
	},
	"read": func(ctx context.Context, p *process) (func() error, error) {
		lease, err := p.RLock(ctx, "x")
		return func() error { return lease.Release(p.W.Ctx) }, err
	},
	"RWMutex": func(ctx context.Context, p *process) (func() error, error) {
		mu := p.RWMutex("x")
		return func() error { return mu.Unlock(p.W.Ctx) }, mu.Lock(ctx)
	},
	"several": func(ctx context.Context, p *process) (func() error, error) {
		leases, err := p.LockAll(ctx, rwlock.Writes("x", "y"))
		return func() error { return leases.Release(p.W.Ctx) }, err
	},
	"reentrant": func(ctx context.Context, p *process) (func() error, error) {
		held, err := reentrant.New(p.Locker).Lock(reentrant.WithOwner(ctx), "x")
		return func() error { return held.Release(p.W.Ctx) }, err
	},
}

// waiter is a goroutine that waits in one of these ways, and gives back at once.
func waiter(ctx context.Context, p *process, wait func(context.Context, *process) (func() error, error)) <-chan error {
	over := make(chan error, 1)
	go func() {
		giveBack, err := wait(ctx, p)
		if err == nil {
			err = giveBack()
		}
		over <- err
	}()
	return over
}

// One master is down, and one client reaches a single one of the others. It is the oldest that waits, and the others
// are granted the lock all the same. Once it reaches a quorum it is the next again.
func TestAWaiterWithoutAQuorumLeavesTheLockToOthers(t *testing.T) {
	for way, wait := range waysToWait {
		for link, cut := range map[string]func(*process){
			"no connection": func(p *process) { p.CutOff(2) },
			"no answers":    func(p *process) { p.Links[2].Blackhole(testredis.Both) },
		} {
			runInFakeTime(t, way+", "+link, 3, func(w *world) {
				o, p, q := warm(w), warm(w), warm(w)
				asked := w.Requests(o)
				w.Minis[1].Stop()
				w.Pass(time.Second)
				cut(o)
				w.Pass(time.Second)
				over := waiter(w.Ctx, o, wait)
				w.Pass(3 * time.Second)

				within, cancel := context.WithTimeout(w.Ctx, 5*time.Second)
				defer cancel()
				w.Release(expect.NoError(p.Lock(within, "x")).In(w))
				require.True(w, expect.NoError(p.TryDo(w.Ctx, "x", func(context.Context) error { return nil })).In(w))
				w.Pass(5 * time.Minute)
				require.LessOrEqual(w, asked.Of(scripts.Acquire), 3, "it takes and leaves the grant again and again")
				require.Less(w, asked.Of(scripts.Yield), 6)

				lease := p.Take("x", rwlock.Write)
				younger := q.InTurn(w.Ctx, "x", rwlock.Write)
				o.Restore(2)
				w.Pass(w.TTL)
				require.True(w, younger.IsWaiting())
				w.Release(lease)
				require.NoError(w, <-over)
				younger.Granted()
			})
		}
	}
}

// Each of two clients reaches one master, and both wait there. All masters are up.
func TestWaitersWithoutAQuorumLeaveTheLockToOthers(t *testing.T) {
	inFakeTime(t, 3, func(w *world) {
		o1, o2, p := warm(w), warm(w), warm(w)
		o1.CutOff(1, 2)
		o2.CutOff(0, 2)
		ctx, cancel := context.WithCancel(w.Ctx)
		defer cancel()
		a, b := o1.Acquire(ctx, "x", rwlock.Write), o2.Acquire(ctx, "x", rwlock.Write)
		w.Pass(3 * time.Second)
		within, stop := context.WithTimeout(w.Ctx, 5*time.Second)
		defer stop()
		w.Release(expect.NoError(p.Lock(within, "x")).In(w))
		cancel()
		require.ErrorIs(w, a.Failed(), rwlock.ErrNoQuorum)
		require.ErrorIs(w, b.Failed(), rwlock.ErrNoQuorum)
	})
}

// A client names another master in the place of one, which has no vote in its set. Another master is down.
func TestAWaiterWithAWrongListLeavesTheLockToOthers(t *testing.T) {
	inFakeTime(t, 4, func(w *world) {
		for _, m := range w.Minis {
			m.NewProcess()
		}
		p, o := warm(w.Part(0, 1, 2)), warm(w.Part(0, 1, 3))
		w.Minis[0].Stop()
		w.Pass(time.Second)
		ctx, cancel := context.WithCancel(w.Ctx)
		defer cancel()
		a := o.Acquire(ctx, "x", rwlock.Write)
		w.Pass(3 * time.Second)
		within, stop := context.WithTimeout(w.Ctx, 5*time.Second)
		defer stop()
		w.Release(expect.NoError(p.Lock(within, "x")).In(w))
		require.True(w, expect.NoError(p.TryDo(w.Ctx, "x", func(context.Context) error { return nil })).In(w))
		cancel()
		require.Error(w, a.Failed())
	})
}

// Five masters: what a waiter has left it asks for again when the third answers, and it is granted by them.
func TestAWaiterAsksAgainOnceAQuorumAnswers(t *testing.T) {
	inFakeTime(t, 5, func(w *world) {
		o := warm(w, redlock.WithNodeTimeout(100*time.Millisecond))
		o.CutOff(2, 3, 4)
		a := o.Acquire(w.Ctx, "x", rwlock.Write)
		w.Pass(time.Minute)
		for _, m := range w.Inspect("x").Masters[:2] {
			require.Empty(w, m.Holders)
		}
		o.Restore(3)
		lease := a.Granted()
		require.Len(w, w.Inspect("x").Masters[0].Holders, 1)
		require.Len(w, w.Inspect("x").Masters[1].Holders, 1)
		w.Release(lease)
	})
}
