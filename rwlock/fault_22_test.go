package rwlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// F22: one cause, one error, and the error says what it was about.

// sentinels are all that an error of this package can be, with the two ends of a context.
var sentinels = []error{
	rwlock.ErrNotAcquired, rwlock.ErrNoQuorum, rwlock.ErrLost, rwlock.ErrReleased, rwlock.ErrNotHeld,
	rwlock.ErrUpgrade, rwlock.ErrConflict, rwlock.ErrClosed, rwlock.ErrOption,
	context.Canceled, context.DeadlineExceeded,
}

var errShutdown = errors.New("shutting down")

// causes make an error each. is lists all sentinels that it matches, says what its text names.
var causes = []struct {
	name string
	make func(w *world, p *process) error
	is   []error
	says []string
}{
	{
		"held by another, one attempt",
		func(w *world, p *process) error { w.held(); return errorOf(p.TryLock(w.ctx, "n")) },
		[]error{rwlock.ErrNotAcquired},
		[]string{"rwlock: ", `write lock "n"`, "held by", "for write", "the holder's meta", "expires in 10s"},
	},
	{
		"held by another, one attempt to read",
		func(w *world, p *process) error { w.held(); return errorOf(p.TryRLock(w.ctx, "n")) },
		[]error{rwlock.ErrNotAcquired},
		[]string{`read lock "n"`, "for write", "the holder's meta"},
	},
	{
		"held by another until ctx timed out",
		func(w *world, p *process) error {
			w.held()
			ctx, cancel := context.WithTimeout(w.ctx, 1500*time.Millisecond)
			defer cancel()
			return errorOf(p.Lock(ctx, "n"))
		},
		[]error{rwlock.ErrNotAcquired, context.DeadlineExceeded},
		[]string{`write lock "n"`, "after 1.5s", "the holder's meta", "context deadline exceeded"},
	},
	{
		"held by another until ctx was cancelled with a cause",
		func(w *world, p *process) error {
			w.held()
			ctx, cancel := context.WithCancelCause(w.ctx)
			time.AfterFunc(time.Second, func() { cancel(errShutdown) })
			return errorOf(p.RLock(ctx, "n"))
		},
		[]error{rwlock.ErrNotAcquired, context.Canceled, errShutdown},
		[]string{`read lock "n"`, "after 1s", "shutting down"},
	},
	{
		"held by another until the limit",
		func(w *world, p *process) error {
			w.held()
			return errorOf(p.Lock(w.ctx, "n", rwlock.WithMaxWait(2*time.Second)))
		},
		[]error{rwlock.ErrNotAcquired},
		[]string{`write lock "n"`, "after 2s", "the holder's meta", "WithMaxWait, 2s"},
	},
	{
		"nobody to ask, one attempt",
		func(w *world, p *process) error { p.die(); w.settle(); return errorOf(p.TryLock(w.ctx, "n")) },
		[]error{rwlock.ErrNoQuorum},
		[]string{`lock "n"`, "no usable answer from Redis; mini:6379: ", "connection refused"},
	},
	{
		"nobody to ask until ctx timed out",
		func(w *world, p *process) error {
			p.die()
			ctx, cancel := context.WithTimeout(w.ctx, 5*time.Second)
			defer cancel()
			return errorOf(p.Lock(ctx, "n"))
		},
		[]error{rwlock.ErrNoQuorum, context.DeadlineExceeded},
		[]string{`lock "n"`, "mini:6379: ", "connection refused"},
	},
	{
		"nobody answers",
		func(w *world, p *process) error {
			p.link.Hold(testredis.Both)
			ctx, cancel := context.WithTimeout(w.ctx, 250*time.Millisecond)
			defer cancel()
			return errorOf(p.TryLock(ctx, "n"))
		},
		[]error{rwlock.ErrNoQuorum, context.DeadlineExceeded},
		[]string{`lock "n"`, "mini:6379: ", "no reply in 250ms"},
	},
	{
		"the server refuses",
		func(w *world, p *process) error {
			w.mini.Miniredis().SetError("MISCONF cannot persist")
			defer w.mini.Miniredis().SetError("")
			return errorOf(p.TryLock(w.ctx, "n"))
		},
		[]error{rwlock.ErrNoQuorum},
		[]string{`lock "n"`, "mini:6379: ", "MISCONF cannot persist"},
	},
	{
		"a key of somebody else",
		func(w *world, p *process) error {
			w.command("SET", "fencelock:{n}", "mine")
			return errorOf(p.Lock(w.ctx, "n"))
		},
		[]error{rwlock.ErrConflict},
		[]string{`lock "n": key holds something else; `, "mini:6379: ", "WRONGTYPE"},
	},
	{
		"an option",
		func(w *world, p *process) error { return errorOf(p.Lock(w.ctx, "n", rwlock.WithTTL(time.Millisecond))) },
		[]error{rwlock.ErrOption},
		[]string{"WithTTL", "1ms", "100ms"},
	},
	{
		"a locker that is closed",
		func(w *world, p *process) error { _ = p.Close(); return errorOf(p.Lock(w.ctx, "n")) },
		[]error{rwlock.ErrClosed},
		[]string{"locker closed", `lock "n"`},
	},
	{
		"a locker that is closed under a waiter",
		func(w *world, p *process) error {
			w.held()
			a := p.queue("n", rwlock.Write)
			_ = p.Close()
			return a.failed()
		},
		[]error{rwlock.ErrClosed},
		[]string{"locker closed", `lock "n"`},
	},
	{
		"a lease that was not to be renewed",
		func(w *world, p *process) error {
			lease := p.lock("n", rwlock.Write, rwlock.WithoutRenewal())
			w.untilOver(lease)
			return lease.Err()
		},
		[]error{rwlock.ErrLost},
		[]string{`lease of "n"`, "token ", "lost: expired"},
	},
	{
		"a lease that was cut off",
		func(w *world, p *process) error {
			lease := p.lock("n", rwlock.Write)
			p.link.Blackhole(testredis.Both)
			w.untilOver(lease)
			return lease.Err()
		},
		[]error{rwlock.ErrLost},
		[]string{`lease of "n"`, "lost: no renewal was confirmed in time", "mini:6379: "},
	},
	{
		"a lease that the server forgot",
		func(w *world, p *process) error {
			lease := p.lock("n", rwlock.Write)
			w.flushAll()
			return lease.Release(w.ctx)
		},
		[]error{rwlock.ErrLost},
		[]string{`lease of "n"`, "lost: gone from Redis"},
	},
	{
		"a lease at its limit",
		func(w *world, p *process) error {
			lease := p.lock("n", rwlock.Write, rwlock.WithMaxHold(25*time.Second))
			w.untilOver(lease)
			return context.Cause(lease.Context(w.ctx))
		},
		[]error{rwlock.ErrLost},
		[]string{`lease of "n"`, "lost: max hold"},
	},
	{
		"a lease that was released",
		func(w *world, p *process) error {
			lease := p.lock("n", rwlock.Write)
			w.release(lease, lease) // twice is no error
			return lease.Err()
		},
		[]error{rwlock.ErrReleased},
		[]string{"lease released"},
	},
	{
		"a released lease renewed",
		func(w *world, p *process) error {
			lease := p.lock("n", rwlock.Write)
			w.release(lease)
			return lease.Renew(w.ctx)
		},
		[]error{rwlock.ErrReleased},
		[]string{"lease released"},
	},
	{
		"a renewal that was not waited for",
		func(w *world, p *process) error {
			lease := p.lock("n", rwlock.Write)
			p.link.Hold(testredis.Both)
			ctx, cancel := context.WithTimeout(w.ctx, time.Second/2)
			defer cancel()
			err := lease.Renew(ctx)
			require.NoError(w.t, lease.Err(), "the lease stands")
			return err
		},
		[]error{context.DeadlineExceeded},
		nil,
	},
	{
		"a release that meets a key of somebody else",
		func(w *world, p *process) error {
			lease := p.lock("n", rwlock.Write)
			w.command("DEL", "fencelock:{n}")
			w.command("SET", "fencelock:{n}", "mine")
			return lease.Release(w.ctx)
		},
		[]error{rwlock.ErrConflict},
		[]string{`lock "n": key holds something else; `, "mini:6379: ", "WRONGTYPE"},
	},
	{
		"a release that was not answered",
		func(w *world, p *process) error {
			lease := p.lock("n", rwlock.Write)
			p.link.Hold(testredis.Both)
			return lease.Release(w.ctx)
		},
		[]error{rwlock.ErrNoQuorum},
		[]string{`lock "n"`, "mini:6379: ", "no reply in 2s"},
	},
	{
		"unlocked without a lock",
		func(w *world, p *process) error { return p.RWMutex("n").Unlock(w.ctx) },
		[]error{rwlock.ErrNotHeld},
		[]string{"not held", `"n"`, "for write"},
	},
	{
		"unlocked for reading without a lock",
		func(w *world, p *process) error {
			m := p.RWMutex("n")
			require.NoError(w.t, m.Lock(w.ctx))
			return m.RUnlock(w.ctx)
		},
		[]error{rwlock.ErrNotHeld},
		[]string{"not held", `"n"`, "for read"},
	},
	{
		"work that failed under the lock",
		func(w *world, p *process) error {
			return p.Do(w.ctx, "n", func(context.Context) error { return errShutdown })
		},
		[]error{errShutdown},
		nil,
	},
	{
		"work that failed for the loss of its lease",
		func(w *world, p *process) error {
			return p.Do(w.ctx, "n", func(ctx context.Context) error {
				w.flushAll()
				<-ctx.Done()
				return context.Cause(ctx)
			})
		},
		[]error{rwlock.ErrLost},
		[]string{`lease of "n"`, "lost: gone from Redis"},
	},
}

// held makes another process hold "n".
func (w *world) held() {
	w.t.Helper()
	w.process().lock("n", rwlock.Write, rwlock.WithMeta("the holder's meta"))
}

func errorOf(lease *rwlock.Lease, err error) error {
	if lease != nil {
		return nil
	}
	return err
}

func TestF22OneCauseOneError(t *testing.T) {
	for _, c := range causes {
		t.Run(c.name, func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				err := c.make(w, w.process())
				require.Error(w.t, err)
				matched := append([]error{errShutdown}, sentinels...)
				for _, sentinel := range matched {
					is := false
					for _, want := range c.is {
						is = is || want == sentinel
					}
					require.Equal(w.t, is, errors.Is(err, sentinel), "%q and %q", err, sentinel)
				}
				for _, part := range c.says {
					require.ErrorContains(w.t, err, part)
				}
				require.NotRegexp(w.t, "quorum|masters?\\b", err.Error(), "there is one Redis")
			})
		})
	}
}

// Each error that carries something carries it for errors.As.
func TestF22ErrorsCarryWhatTheySay(t *testing.T) {
	inFakeTime(t, func(w *world) {
		holder, p := w.process(), w.process()
		held := holder.lock("n", rwlock.Write, rwlock.WithMeta("batch 7"))
		w.pass(time.Second)
		_, err := p.Lock(w.ctx, "n", rwlock.WithMaxWait(3500*time.Millisecond))
		var contended *rwlock.AcquireError
		require.ErrorAs(w.t, err, &contended)
		require.Equal(w.t, "n", contended.Name)
		require.Equal(w.t, rwlock.Write, contended.Mode)
		require.Equal(w.t, 3500*time.Millisecond, contended.Waited)
		require.Equal(w.t, 1, contended.Attempts)
		require.Equal(w.t, held.Owner(), contended.Holder.Owner)
		require.Equal(w.t, "batch 7", contended.Holder.Meta)
		require.Equal(w.t, rwlock.Write, contended.Holder.Mode)
		require.Equal(w.t, time.Second, contended.Holder.Held)

		token := held.Token()
		w.flushAll()
		var lost *rwlock.LostError
		require.ErrorAs(w.t, held.Release(w.ctx), &lost)
		require.Equal(w.t, rwlock.LostError{Name: "n", Token: token, Reason: rwlock.Taken}, *lost)

		p.die()
		_, err = p.TryLock(w.ctx, "n")
		var unanswered *rwlock.QuorumError
		require.ErrorAs(w.t, err, &unanswered)
		require.Equal(w.t, []any{"n", 1, 0}, []any{unanswered.Name, unanswered.Need, unanswered.Got})
		require.Len(w.t, unanswered.Nodes, 1)
		require.Equal(w.t, 0, unanswered.Nodes[0].Index)
		require.Equal(w.t, "mini:6379", unanswered.Nodes[0].Addr)
		var node *rwlock.NodeError
		require.ErrorAs(w.t, err, &node)
	})
}

// A node timeout is known by its type, and never taken for the end of a context.
func TestF22ANodeTimeoutHasAType(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.process()
		lease := p.lock("n", rwlock.Write)
		p.link.Hold(testredis.Both)
		err := lease.Release(w.ctx)
		var silence *rwlock.NoReplyError
		require.ErrorAs(w.t, err, &silence)
		require.Equal(w.t, 2*time.Second, silence.After)
		require.NotErrorIs(w.t, err, context.DeadlineExceeded)

		_, err = p.Inspect(w.ctx, "n")
		silence = nil
		require.ErrorAs(w.t, err, &silence)
		require.Positive(w.t, silence.After)
	})
}

// A release that is refused for good is known not to go on.
func TestF22AConflictAtReleaseIsNoIndeterminateEnd(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.process()
		lease := p.lock("n", rwlock.Write)
		w.command("DEL", "fencelock:{n}")
		w.command("SET", "fencelock:{n}", "mine")
		err := lease.Release(w.ctx)
		require.ErrorIs(w.t, err, rwlock.ErrConflict)
		require.False(w.t, rwlock.Indeterminate(err))
		require.NotContains(w.t, err.Error(), "background")
	})
}
