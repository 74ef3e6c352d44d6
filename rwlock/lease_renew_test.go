package rwlock_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// A renewal that is not confirmed comes as a *QuorumError that names the lock and the server. The lease stands.
func TestARenewalThatIsNotConfirmedIsAQuorumError(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.Process()
		lease := p.Take("n", rwlock.Write)
		p.Link.Hold(testredis.Both)
		err := lease.Renew(w.Ctx)
		require.ErrorIs(w, err, rwlock.ErrNoQuorum)
		var failed *rwlock.QuorumError
		require.ErrorAs(w, err, &failed)
		require.Equal(w, []any{"n", 1, 0}, []any{failed.Name, failed.Need, failed.Got})
		require.Len(w, failed.Nodes, 1)
		require.Equal(w, "mini:6379", failed.Nodes[0].Addr)
		require.ErrorAs(w, err, new(*rwlock.NoReplyError))
		require.ErrorContains(w, err, `lock "n": no usable answer from Redis; mini:6379: no reply in 1s; renewal`)
		require.True(w, rwlock.Indeterminate(err))
		require.NoError(w, lease.Err())
		p.Link.Restore()
	})
}

// A renewal that is asked for while the answer of the round before is on its way is sent when that has come.
func TestARenewalBehindALateAnswerIsConfirmed(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.Process()
		lease := p.Take("n", rwlock.Write)
		require.NoError(w, lease.Renew(w.Ctx)) // the script is known
		p.Link.DelayDir(testredis.ToClient, 1500*time.Millisecond)
		require.ErrorIs(w, lease.Renew(w.Ctx), rwlock.ErrNoQuorum, "after a second")
		p.Link.DelayDir(testredis.ToClient, 0)
		w.Pass(200 * time.Millisecond)
		require.NoError(w, lease.Renew(w.Ctx))
		require.InDelta(w, w.TTL.Seconds(), time.Until(lease.Deadline()).Seconds(), 0.2)
	})
}

// The end of the caller's context is told as that, with the lock, and nothing is sent for one that has ended before.
func TestARenewalThatIsNotWaitedForNamesTheLock(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.Process()
		lease := p.Take("n", rwlock.Write)
		p.Link.ResetCalls()
		ctx, cancel := context.WithCancelCause(w.Ctx)
		cancel(errShutdown)
		for _, end := range []error{context.Canceled, errShutdown} {
			require.ErrorIs(w, lease.Renew(ctx), end)
		}
		require.EqualError(w, lease.Renew(ctx), `rwlock: lock "n": renewal not confirmed: shutting down`)
		w.Settle()
		require.Empty(w, sent(p.Link))

		p.Link.Hold(testredis.Both)
		brief, stop := context.WithTimeout(w.Ctx, 100*time.Millisecond)
		defer stop()
		err := lease.Renew(brief)
		require.ErrorIs(w, err, context.DeadlineExceeded)
		require.NotErrorIs(w, err, rwlock.ErrNoQuorum)
		require.ErrorContains(w, err, `lock "n"`)
		p.Link.Restore()
	})
}

// A hand-off lasts for a short claim until it is confirmed. How often the confirmation is tried again follows from what
// is left of the claim, however long the TTL.

// spare is how long before its deadline a lease's link must be back at the latest.
const spare = 250 * time.Millisecond

var confirmationTTLs = []time.Duration{2 * time.Second, 10 * time.Second, time.Minute, 10 * time.Minute, 24 * time.Hour}

// confirmationTroubles keep a process's commands from being answered well until mend is called.
var confirmationTroubles = map[string]func(w *world, p *process) (mend func()){
	"server refuses": func(w *world, _ *process) func() {
		w.Mini.Miniredis().SetError("LOADING Redis is loading the dataset in memory")
		return func() { w.Mini.Miniredis().SetError("") }
	},
	"link down": func(_ *world, p *process) func() {
		p.Link.Refuse()
		p.Link.Cut()
		return p.Link.Restore
	},
	"link held": func(_ *world, p *process) func() {
		p.Link.Hold(testredis.Both)
		return p.Link.Restore
	},
}

func TestConfirmationIsTriedAgainInTime(t *testing.T) {
	for what, strike := range confirmationTroubles {
		for _, ttl := range confirmationTTLs {
			for _, opts := range [][]rwlock.LockOption{nil, {rwlock.WithoutRenewal()}} {
				name := what + ", TTL " + ttl.String()
				if opts != nil {
					name += ", without renewal"
				}
				t.Run(name, func(t *testing.T) {
					inFakeTime(t, func(w *world) {
						w.TTL = ttl
						confirmLate(w, strike, opts)
					})
				})
			}
		}
	}
}

// confirmLate hands a lock off to a process whose commands fail from that moment until shortly before the deadline.
func confirmLate(w *world, strike func(*world, *process) func(), opts []rwlock.LockOption) {
	holder, p := w.Process(), w.Process()
	held := holder.Take("n", rwlock.Write)
	waiter := p.Queue("n", rwlock.Write, opts...)
	w.Pass(1500 * time.Millisecond)
	p.Link.DelayDir(testredis.ToClient, 5*time.Millisecond) // the message is on its way when the trouble begins
	w.Release(held)
	lease := waiter.Granted()
	mend := strike(w, p)
	p.Link.Delay(0)
	confirmed := lease.Deadline().After(time.Now().Add(w.Claim()))
	if confirmed || time.Until(lease.Deadline()) <= spare {
		mend()
		require.True(w, confirmed, "the deadline is in %v", time.Until(lease.Deadline()))
		return // it was confirmed together with the hand-off
	}
	w.Pass(time.Until(lease.Deadline()) - spare)
	mend()
	w.Pass(2 * spare)
	require.NoError(w, lease.Err(), "the trouble was over %v before the deadline", spare)
	require.Greater(w, time.Until(lease.Deadline()), w.TTL/2)
}

// A lease that is not renewed lasts for its TTL also where the lock was handed to it. A hand-off lasts for less until a
// renewal confirms it.
func TestAHandOffWithoutRenewalLastsForItsTTL(t *testing.T) {
	inFakeTime(t, func(w *world) {
		holder, p := w.Process(), w.Process()
		held := holder.Take("n", rwlock.Write)
		waiter := p.Queue("n", rwlock.Write, rwlock.WithoutRenewal())
		w.Release(held)
		lease := waiter.Granted()
		w.Pass(w.TTL - w.Claim())
		require.NoError(w, lease.Err())
		w.UntilOver(lease)
		require.Greater(w, time.Since(waiter.At), w.TTL*9/10)
	})
}

// The longest duration that there is ends nothing at once: it is no less than the life of any process.
func TestALimitOfCenturies(t *testing.T) {
	inFakeTime(t, func(w *world) {
		const centuries = time.Duration(math.MaxInt64)
		p := w.Process(rwlock.WithReleaseTimeout(centuries), rwlock.WithMaxHold(centuries), rwlock.WithMaxWait(centuries),
			rwlock.WithLinger(centuries))
		w.Pass(time.Second)
		lease, mu := p.Take("n", rwlock.Write), p.RWMutex("m")
		require.NoError(w, mu.Lock(w.Ctx))
		w.Pass(2 * w.TTL)
		require.NoError(w, lease.Err())
		require.NoError(w, mu.Context(w.Ctx).Err())
		require.NoError(w, mu.Unlock(w.Ctx))
		w.Pass(2 * w.TTL)
		require.Equal(w, 1, p.Stats().Lingering)
		w.Release(lease)
	})
}
