package rwlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// F3: the lease ends locally at (time before sending + TTL - drift), by a timer, whatever any call does; only a
// successful reply moves it.

var directions = map[string]testredis.Direction{
	"to the server": testredis.ToServer, "to the client": testredis.ToClient, "both ways": testredis.Both,
}

// latency is so long that in a sweep some requests and some replies are under way when the link is cut.
const latency = 150 * time.Millisecond

func TestF03HolderOfADeadLinkEndsBeforeTheNextEnters(t *testing.T) {
	for name, dir := range directions {
		t.Run(name, func(t *testing.T) {
			for cut := time.Duration(0); cut <= 8*time.Second; cut += 131 * time.Millisecond {
				inFakeTime(t, func(w *world) {
					p, q := w.process(), w.process()
					p.link.Delay(latency)
					lease := p.lock("n", rwlock.Write)
					over := watch(lease)
					next := q.queue("n", rwlock.Write)
					w.pass(cut)
					p.link.Blackhole(dir)
					deadAt := time.Now()

					next.granted()
					require.True(w.t, over.before(next.at), "cut %v after the grant: two at once", cut)
					loss := w.loss(lease.Err())
					require.Equal(w.t, rwlock.NoQuorum, loss.Reason)
					require.Error(w.t, loss.Err)
					// What still reaches the server may be a renewal, at the latest when the holder's own trust ends.
					ttls := map[bool]time.Duration{true: 2, false: 1}[dir == testredis.ToClient]
					require.Less(w.t, next.at.Sub(deadAt), ttls*w.ttl+2*latency)
				})
			}
		})
	}
}

// A hand-off is the other way in: its holder computes the deadline from a message and the server's clock.
func TestF03WaiterOfADeadLinkIsNeverInBesideTheNext(t *testing.T) {
	for name, dir := range directions {
		t.Run(name, func(t *testing.T) {
			for cut := time.Duration(0); cut <= 6*time.Second; cut += 131 * time.Millisecond {
				inFakeTime(t, func(w *world) {
					first, p, q := w.process(), w.process(), w.process()
					held := first.lock("n", rwlock.Write)
					middle := p.queue("n", rwlock.Write)
					p.link.Delay(latency)
					next := q.queue("n", rwlock.Write)
					const work = 2 * time.Second
					var over *ending
					w.at(work, func() { w.release(held) }, cut, func() { p.link.Blackhole(dir) })
					if w.first(middle, next) == next {
						require.True(w.t, middle.isWaiting())
						return
					}
					over = watch(middle.granted())
					next.granted()
					require.True(w.t, over.before(next.at), "cut at %v: two at once", cut)
				})
			}
		})
	}
}

func TestF03DeadlineIsCountedFromBeforeTheRequest(t *testing.T) {
	for _, slow := range []time.Duration{0, 70 * time.Millisecond, 240 * time.Millisecond} {
		inFakeTime(t, func(w *world) {
			p := w.process()
			p.link.Delay(slow)
			trusted := w.ttl - w.ttl/100 - 2*time.Millisecond
			p.warmUp()

			sent := time.Now()
			lease := p.lock("n", rwlock.Write, rwlock.WithoutRenewal())
			require.Equal(w.t, 2*slow, time.Since(sent))
			require.Equal(w.t, sent.Add(trusted), lease.Deadline())

			sent = time.Now()
			require.NoError(w.t, lease.Renew(w.ctx))
			require.Equal(w.t, 2*slow, time.Since(sent))
			require.Equal(w.t, sent.Add(trusted), lease.Deadline())

			over := watch(lease)
			p.link.Blackhole(testredis.Both)
			renewal := make(chan error)
			w.pass(w.ttl / 2)
			go func() { renewal <- lease.Renew(w.ctx) }()
			require.Error(w.t, <-renewal)
			require.Equal(w.t, sent.Add(trusted), lease.Deadline(), "a renewal without an answer moved the deadline")
			w.untilOver(lease)
			require.Equal(w.t, trusted, time.Since(sent))
			w.settle()
			require.True(w.t, over.before(sent.Add(trusted+1)), "the context ends with the lease")
		})
	}
}

// A grant whose reply took longer than the lease is of no use: it is not believed, and the lock is asked for again.
func TestF03GrantThatComesTooLateIsNotBelieved(t *testing.T) {
	everywhere(t, func(w *world) {
		const ttl = 2 * time.Second
		p := w.process(rwlock.WithTTL(ttl))
		p.warmUp()
		struck := p.link.DelayNextReply(running("acquire"), ttl+ttl/4)
		a := p.acquire(w.ctx, "n", rwlock.Write)
		<-struck
		early := w.inspect("n")
		lease := a.granted()
		require.NoError(w.t, lease.Err())
		require.Greater(w.t, lease.Token(), early.Token, "a new grant")
		require.Positive(w.t, time.Until(lease.Deadline()))
		w.release(lease)

		struck = p.link.DelayNextReply(running("acquire"), ttl+ttl/4)
		tried, err := p.TryLock(w.ctx, "m")
		<-struck
		if err == nil { // asked again
			require.NoError(w.t, tried.Err())
			require.Positive(w.t, time.Until(tried.Deadline()))
			w.release(tried)
		} else {
			require.ErrorIs(w.t, err, rwlock.ErrNotAcquired)
		}
	})
}
