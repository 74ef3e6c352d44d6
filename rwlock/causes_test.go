package rwlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// causesOfNoLease end an acquisition.
var causesOfNoLease = []cause{
	{
		"held by another, one attempt",
		func(w *world, p *process) error { holdElsewhere(w); return errorOf(p.TryLock(w.Ctx, "n")) },
		[]error{rwlock.ErrNotAcquired},
		[]string{"rwlock: ", `write lock "n"`, "held by", "for write", "the holder's meta", "expires in 10s"},
	},
	{
		"held by another, one attempt to read",
		func(w *world, p *process) error { holdElsewhere(w); return errorOf(p.TryRLock(w.Ctx, "n")) },
		[]error{rwlock.ErrNotAcquired},
		[]string{`read lock "n"`, "for write", "the holder's meta"},
	},
	{
		"held by another until ctx timed out",
		func(w *world, p *process) error {
			holdElsewhere(w)
			return errorOf(p.Lock(w.Soon(1500*time.Millisecond), "n"))
		},
		[]error{rwlock.ErrNotAcquired, context.DeadlineExceeded},
		[]string{`write lock "n"`, "after 1.5s", "the holder's meta", "context deadline exceeded"},
	},
	{
		"held by another until ctx was cancelled with a cause",
		func(w *world, p *process) error {
			holdElsewhere(w)
			ctx, cancel := context.WithCancelCause(w.Ctx)
			time.AfterFunc(time.Second, func() { cancel(errShutdown) })
			return errorOf(p.RLock(ctx, "n"))
		},
		[]error{rwlock.ErrNotAcquired, context.Canceled, errShutdown},
		[]string{`read lock "n"`, "after 1s", "shutting down"},
	},
	{
		"held by another until the limit",
		func(w *world, p *process) error {
			holdElsewhere(w)
			return errorOf(p.Lock(w.Ctx, "n", rwlock.WithMaxWait(2*time.Second)))
		},
		[]error{rwlock.ErrNotAcquired},
		[]string{`write lock "n"`, "after 2s", "the holder's meta", "WithMaxWait limit of 2s"},
	},
	{
		"ctx had ended before",
		func(w *world, p *process) error {
			ctx, cancel := context.WithCancelCause(w.Ctx)
			cancel(errShutdown)
			return errorOf(p.Lock(ctx, "n"))
		},
		[]error{rwlock.ErrNotAcquired, context.Canceled, errShutdown},
		[]string{`write lock "n"`, "shutting down"},
	},
	{
		"a single attempt of an RWMutex",
		func(w *world, p *process) error { holdElsewhere(w); return p.RWMutex("n").TryRLock(w.Ctx) },
		[]error{rwlock.ErrNotAcquired},
		[]string{`read lock "n"`, "the holder's meta"},
	},
	{
		"a conversion beside a reader",
		func(w *world, p *process) error {
			lease := p.Take("n", rwlock.Read)
			w.Process().Take("n", rwlock.Read)
			return lease.TryUpgrade(w.Ctx)
		},
		[]error{rwlock.ErrNotAcquired},
		[]string{`write lock "n"`, "for read"},
	},
	{
		"nobody to ask, one attempt",
		func(w *world, p *process) error { p.Die(); w.Settle(); return errorOf(p.TryLock(w.Ctx, "n")) },
		[]error{rwlock.ErrNoQuorum},
		[]string{`lock "n"`, "no usable answer from Redis; mini:6379: ", "connection refused"},
	},
	{
		"nobody to ask until ctx timed out",
		func(w *world, p *process) error {
			p.Die()
			return errorOf(p.Lock(w.Soon(5*time.Second), "n"))
		},
		[]error{rwlock.ErrNoQuorum, context.DeadlineExceeded},
		[]string{`lock "n"`, "mini:6379: ", "connection refused"},
	},
	{
		"nobody answers",
		func(w *world, p *process) error {
			p.Link.Hold(testredis.Both)
			return errorOf(p.TryLock(w.Soon(250*time.Millisecond), "n"))
		},
		[]error{rwlock.ErrNoQuorum, context.DeadlineExceeded},
		[]string{`lock "n"`, "mini:6379: ", "no reply in 250ms"},
	},
	{
		"the server refuses",
		func(w *world, p *process) error {
			w.Mini.Miniredis().SetError("MISCONF cannot persist")
			defer w.Mini.Miniredis().SetError("")
			return errorOf(p.TryLock(w.Ctx, "n"))
		},
		[]error{rwlock.ErrNoQuorum},
		[]string{`lock "n"`, "mini:6379: ", "MISCONF cannot persist"},
	},
	{
		"a key of somebody else",
		func(w *world, p *process) error {
			w.Command("SET", "fencelock:{n}", "mine")
			return errorOf(p.Lock(w.Ctx, "n"))
		},
		[]error{rwlock.ErrConflict},
		[]string{`lock "n": key holds something else; `, "mini:6379: ", "WRONGTYPE"},
	},
	{
		"an option",
		func(w *world, p *process) error { return errorOf(p.Lock(w.Ctx, "n", rwlock.WithTTL(time.Millisecond))) },
		[]error{rwlock.ErrOption},
		[]string{"WithTTL", "1ms", "100ms"},
	},
	{
		"a locker that is closed",
		func(w *world, p *process) error { _ = p.Close(); return errorOf(p.Lock(w.Ctx, "n")) },
		[]error{rwlock.ErrClosed},
		[]string{"locker closed", `lock "n"`},
	},
	{
		"a locker that is closed under a waiter",
		func(w *world, p *process) error {
			holdElsewhere(w)
			a := p.Queue("n", rwlock.Write)
			_ = p.Close()
			return a.Failed()
		},
		[]error{rwlock.ErrClosed},
		[]string{"locker closed", `lock "n"`},
	},
}

// causesOfTheEnd end a lease or what is done with one.
var causesOfTheEnd = []cause{
	{
		"a lease that was not to be renewed",
		func(w *world, p *process) error {
			lease := p.Take("n", rwlock.Write, rwlock.WithoutRenewal())
			w.UntilOver(lease)
			return lease.Err()
		},
		[]error{rwlock.ErrLost},
		[]string{`lease of "n"`, "token ", "lost: expired (its TTL is 10s)"},
	},
	{
		"a lease that was cut off",
		func(w *world, p *process) error {
			lease := p.Take("n", rwlock.Write)
			p.Link.Blackhole(testredis.Both)
			w.UntilOver(lease)
			return lease.Err()
		},
		[]error{rwlock.ErrLost},
		[]string{`lease of "n"`, "lost: not renewed (its TTL is 10s): ", "mini:6379: "},
	},
	{
		"a hand-off that was not confirmed",
		func(w *world, p *process) error {
			held := w.Process().Take("n", rwlock.Write)
			waiting := p.Queue("n", rwlock.Write)
			w.Release(held)
			lease := waiting.Granted()
			p.Link.Blackhole(testredis.Both)
			w.UntilOver(lease)
			return lease.Err()
		},
		[]error{rwlock.ErrLost},
		[]string{
			`lease of "n"`,
			"lost: not renewed (a hand-off lasts 3s until a renewal confirms it): ", "mini:6379: ",
		},
	},
	{
		"a lease that the server forgot",
		func(w *world, p *process) error {
			lease := p.Take("n", rwlock.Write)
			w.FlushAll()
			return lease.Release(w.Ctx)
		},
		[]error{rwlock.ErrLost},
		[]string{`lease of "n"`, "lost: gone"},
	},
	{
		"a lease at its limit",
		func(w *world, p *process) error {
			lease := p.Take("n", rwlock.Write, rwlock.WithMaxHold(25*time.Second))
			w.UntilOver(lease)
			return context.Cause(lease.Context(w.Ctx))
		},
		[]error{rwlock.ErrLost},
		[]string{`lease of "n"`, "lost: max hold of 25s was reached"},
	},
	{
		"a lease that was released",
		func(w *world, p *process) error {
			lease := p.Take("n", rwlock.Write)
			w.Release(lease, lease) // twice is no error
			return lease.Err()
		},
		[]error{rwlock.ErrReleased},
		[]string{`lease released: lock "n"`},
	},
	{
		"a released lease renewed",
		func(w *world, p *process) error {
			lease := p.Take("n", rwlock.Write)
			w.Release(lease)
			return lease.Renew(w.Ctx)
		},
		[]error{rwlock.ErrReleased},
		[]string{`lease released: lock "n"`},
	},
	{
		"a renewal that was not waited for",
		func(w *world, p *process) error {
			lease := p.Take("n", rwlock.Write)
			p.Link.Hold(testredis.Both)
			err := lease.Renew(w.Soon(time.Second / 2))
			require.NoError(w, lease.Err(), "the lease stands")
			return err
		},
		[]error{context.DeadlineExceeded},
		[]string{`lock "n"`, "renewal", "context deadline exceeded"},
	},
	{
		"a renewal that was not answered",
		func(w *world, p *process) error {
			lease := p.Take("n", rwlock.Write)
			p.Link.Hold(testredis.Both)
			return lease.Renew(w.Ctx)
		},
		[]error{rwlock.ErrNoQuorum},
		[]string{`lock "n"`, "mini:6379: ", "no reply in 1s"},
	},
	{
		"a release that meets a key of somebody else",
		func(w *world, p *process) error {
			lease := p.Take("n", rwlock.Write)
			w.Command("DEL", "fencelock:{n}")
			w.Command("SET", "fencelock:{n}", "mine")
			return lease.Release(w.Ctx)
		},
		[]error{rwlock.ErrConflict},
		[]string{`lock "n": key holds something else; `, "mini:6379: ", "WRONGTYPE"},
	},
	{
		"a release that was not answered",
		func(w *world, p *process) error {
			lease := p.Take("n", rwlock.Write)
			p.Link.Hold(testredis.Both)
			return lease.Release(w.Ctx)
		},
		[]error{rwlock.ErrNoQuorum},
		[]string{`lock "n"`, "mini:6379: ", "no reply in 2s"},
	},
	{
		"unlocked without a lock",
		func(w *world, p *process) error { return p.RWMutex("n").Unlock(w.Ctx) },
		[]error{rwlock.ErrNotHeld},
		[]string{"not held", `"n"`, "for write"},
	},
	{
		"unlocked for reading without a lock",
		func(w *world, p *process) error {
			m := p.RWMutex("n")
			require.NoError(w, m.Lock(w.Ctx))
			return m.RUnlock(w.Ctx)
		},
		[]error{rwlock.ErrNotHeld},
		[]string{"not held", `"n"`, "for read"},
	},
	{
		"work that failed under the lock",
		func(w *world, p *process) error {
			return p.Do(w.Ctx, "n", func(context.Context) error { return errShutdown })
		},
		[]error{errShutdown},
		nil,
	},
	{
		"work that failed for the loss of its lease",
		func(w *world, p *process) error {
			return p.Do(w.Ctx, "n", func(ctx context.Context) error {
				w.FlushAll()
				<-ctx.Done()
				return context.Cause(ctx)
			})
		},
		[]error{rwlock.ErrLost},
		[]string{`lease of "n"`, "lost: gone"},
	},
}

// Each section tells of the loss of its own lock, once, whatever the work has told of others.
func TestDoTellsOfEachLossOnce(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.Process()
		var own error // of the inner lock, as the work noticed it
		for _, noticed := range []bool{false, true} {
			err := p.Do(w.Ctx, "a", func(ctx context.Context) error {
				return p.Do(ctx, "b", func(ctx context.Context) error {
					w.FlushAll()
					<-ctx.Done()
					if own = context.Cause(ctx); noticed {
						return own
					}
					return nil
				})
			})
			several, ok := err.(interface{ Unwrap() []error })
			require.True(w, ok, "%v", err)
			var names []string
			for _, each := range several.Unwrap() {
				lost := testkit.As[*rwlock.LostError](w, each, "%v", each)
				names = append(names, lost.Name)
			}
			require.ElementsMatch(w, []string{"a", "b"}, names, "noticed: %v", noticed)
		}
	})
}
