package rwlock_test

import (
	"context"
	"time"

	"github.com/seed74116694/fencelock/internal/testredis"
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
			ctx, cancel := context.WithTimeout(w.Ctx, 1500*time.Millisecond)
			defer cancel()
			return errorOf(p.Lock(ctx, "n"))
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
		"nobody to ask, one attempt",
		func(w *world, p *process) error { p.Die(); w.Settle(); return errorOf(p.TryLock(w.Ctx, "n")) },
		[]error{rwlock.ErrNoQuorum},
		[]string{`lock "n"`, "no usable answer from Redis; mini:6379: ", "connection refused"},
	},
	{
		"nobody to ask until ctx timed out",
		func(w *world, p *process) error {
			p.Die()
			ctx, cancel := context.WithTimeout(w.Ctx, 5*time.Second)
			defer cancel()
			return errorOf(p.Lock(ctx, "n"))
		},
		[]error{rwlock.ErrNoQuorum, context.DeadlineExceeded},
		[]string{`lock "n"`, "mini:6379: ", "connection refused"},
	},
	{
		"nobody answers",
		func(w *world, p *process) error {
			p.Link.Hold(testredis.Both)
			ctx, cancel := context.WithTimeout(w.Ctx, 250*time.Millisecond)
			defer cancel()
			return errorOf(p.TryLock(ctx, "n"))
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
