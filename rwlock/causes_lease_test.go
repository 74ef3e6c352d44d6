package rwlock_test

import (
	"context"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

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
		[]string{`lease of "n"`, "lost: no renewal was confirmed in time (its TTL is 10s): ", "mini:6379: "},
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
			"lost: no renewal was confirmed in time (a hand-off lasts 3s until a renewal confirms it): ", "mini:6379: ",
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
		[]string{`lease of "n"`, "lost: gone from Redis"},
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
			ctx, cancel := context.WithTimeout(w.Ctx, time.Second/2)
			defer cancel()
			err := lease.Renew(ctx)
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
		[]string{`lease of "n"`, "lost: gone from Redis"},
	},
}
