package rwlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// F3: the lease ends locally at (time before sending + TTL - drift), by a timer; only a reply moves it.

var directions = map[string]testredis.Direction{
	"to the server": testredis.ToServer, "to the client": testredis.ToClient, "both ways": testredis.Both,
}

// latency is so long that in a sweep some requests and some replies are under way when the link is cut.
const latency = 150 * time.Millisecond

// every is how far apart the moments are at which links fail.
var every = testredis.Few(7*131*time.Millisecond, 131*time.Millisecond)

func TestF03HolderOfADeadLinkEndsBeforeTheNextEnters(t *testing.T) {
	testkit.Each(t, directions, func(t *testing.T, dir testredis.Direction) {
		for cut := time.Duration(0); cut <= 8*time.Second; cut += every {
			inFakeTime(t, withTwo(func(w *world, p, q *process) {
				p.Link.Delay(latency)
				lease := p.Take("n", rwlock.Write)
				over := watch(lease)
				next := q.Queue("n", rwlock.Write)
				w.Pass(cut)
				p.Link.Blackhole(dir)
				deadAt := time.Now()

				next.Granted()
				require.True(w, over.before(next.At), "cut %v after the grant: two at once", cut)
				loss := w.Loss(lease.Err())
				require.Equal(w, rwlock.ReasonNotRenewed, loss.Reason)
				require.Error(w, loss.Err)
				// What still reaches the server may be a renewal, at the latest when the holder's own trust ends.
				ttls := map[bool]time.Duration{true: 2, false: 1}[dir == testredis.ToClient]
				require.Less(w, next.At.Sub(deadAt), ttls*w.TTL+2*latency)
			}))
		}
	})
}

func TestF03DeadlineIsCountedFromBeforeTheRequest(t *testing.T) {
	for _, slow := range []time.Duration{0, 70 * time.Millisecond, 240 * time.Millisecond} {
		inFakeTime(t, withOne(func(w *world, p *process) {
			p.Link.Delay(slow)
			trusted := w.TTL - w.TTL/100 - 2*time.Millisecond
			p.WarmUp()

			sent := time.Now()
			lease := p.Take("n", rwlock.Write, rwlock.WithoutRenewal())
			require.Equal(w, 2*slow, time.Since(sent))
			require.Equal(w, sent.Add(trusted), lease.Deadline())

			sent = time.Now()
			require.NoError(w, lease.Renew(w.Ctx))
			require.Equal(w, 2*slow, time.Since(sent))
			require.Equal(w, sent.Add(trusted), lease.Deadline())

			over := watch(lease)
			p.Link.Blackhole(testredis.Both)
			renewal := make(chan error)
			w.Pass(w.TTL / 2)
			go func() { renewal <- lease.Renew(w.Ctx) }()
			require.Error(w, <-renewal)
			require.Equal(w, sent.Add(trusted), lease.Deadline(), "a renewal without an answer moved the deadline")
			w.UntilOver(lease)
			require.Equal(w, trusted, time.Since(sent))
			w.Settle()
			require.True(w, over.before(sent.Add(trusted+1)), "the context ends with the lease")
		}))
	}
}

// A grant whose reply took longer than the lease is of no use: it is not believed, and the lock is asked for again.
func TestF03GrantThatComesTooLateIsNotBelieved(t *testing.T) {
	inFakeTime(t, func(w *world) {
		const ttl = 2 * time.Second
		p := w.Process(rwlock.WithTTL(ttl))
		p.WarmUp()
		struck := p.Link.DelayNextReply(testkit.Running("acquire"), ttl+ttl/4)
		a := p.Acquire(w.Ctx, "n", rwlock.Write)
		<-struck
		early := w.Inspect("n")
		lease := a.Granted()
		require.NoError(w, lease.Err())
		require.Greater(w, lease.Token(), early.Token, "a new grant")
		require.Positive(w, time.Until(lease.Deadline()))
		w.Release(lease)

		struck = p.Link.DelayNextReply(testkit.Running("acquire"), ttl+ttl/4)
		tried, err := p.TryLock(w.Ctx, "m")
		<-struck
		if err == nil { // asked again
			require.NoError(w, tried.Err())
			require.Positive(w, time.Until(tried.Deadline()))
			w.Release(tried)
		} else {
			require.ErrorIs(w, err, rwlock.ErrNotAcquired)
		}
	})
}

// A refresh that reports a grant reports what was left of it when the server ran it: trust counts from before that.
func TestF03GrantThatARefreshReportsIsTrustedFromBeforeIt(t *testing.T) {
	inFakeTime(t, func(w *world) {
		const slow = 800 * time.Millisecond
		holder, p := w.Process(), w.Process()
		held := holder.Take("n", rwlock.Write)
		waiter := p.Queue("n", rwlock.Write)
		p.Link.DropPushes(func([]string) bool { return true })
		w.Release(held)
		granted := time.Now()
		p.Link.DelayNextReply(testkit.Running("refresh"), slow)
		lease := waiter.Granted()
		require.Greater(w, waiter.At.Sub(granted), slow)
		require.Less(w, lease.Deadline(), granted.Add(w.Claim()), "until when the server keeps it")
	})
}
