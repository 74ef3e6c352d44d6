package rwlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

// F2: the same id again is never "held by another"; and after an unknown outcome a release for that id is always sent.

func TestF02TryWhoseReplyIsLostIsReleased(t *testing.T) {
	everywhere(t, func(w *world) {
		p, q := w.process(), w.process()
		p.warmUp()
		for _, mode := range bothModes {
			lost := p.link.DropNextReply(running(scripts.Acquire))
			_, err := p.try("n", mode)
			<-lost
			require.ErrorIs(w.t, err, rwlock.ErrNoQuorum, "nobody said that another holds it")
			require.NotErrorIs(w.t, err, rwlock.ErrNotAcquired)
			require.True(w.t, rwlock.Indeterminate(err))

			start := time.Now()
			w.release(q.lock("n", rwlock.Write))
			w.requireLess(time.Since(start), w.ttl/2, "it locked itself out until its lease expired")
			w.eventually("it can be tried again", func() bool {
				again, err := p.try("n", mode)
				if err != nil {
					return false
				}
				w.release(again)
				return true
			})
			w.requireLess(time.Since(start), w.ttl*3/4, "it can be tried again")
		}
	})
}

func TestF02UnansweredAcquireIsReleasedWhenTheWaitingEnds(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p, q := w.process(), w.process()
		p.warmUp()
		muted := p.link.MuteNextReply(running(scripts.Acquire))
		ctx, cancel := context.WithTimeout(w.ctx, 700*time.Millisecond)
		defer cancel()
		start := time.Now()
		a := p.acquire(ctx, "n", rwlock.Write)
		<-muted
		require.Len(w.t, w.inspect("n").Holders, 1, "it is granted and nobody knows")

		err := a.failed()
		require.Equal(w.t, 700*time.Millisecond, a.at.Sub(start), "ctx bounds the waiting")
		require.ErrorIs(w.t, err, context.DeadlineExceeded)
		require.ErrorIs(w.t, err, rwlock.ErrNoQuorum)
		require.True(w.t, rwlock.Indeterminate(err))
		w.release(q.lock("n", rwlock.Write))
		// The connection is dumb but open: the client needs its write timeout, twice at most, to see that.
		require.Less(w.t, time.Since(start), 7*time.Second)
		w.pass(2 * w.ttl) // a release that finds nothing leaves a tombstone
		w.onlyTokensLeft()
	})
}

// scriptsSeen receives the name of every script that reaches the server from now on.
func (p *process) scriptsSeen() <-chan scripts.Name {
	seen := make(chan scripts.Name, 100)
	p.link.OnCommand(func(cmd []string) {
		if name := scriptOf(cmd); name != "" {
			seen <- name
		}
	})
	return seen
}

// delayFirst lets the next request arrive late.
func (p *process) delayFirst(late time.Duration) {
	first := true
	p.link.DelayFunc(testredis.ToServer, func() time.Duration {
		if first {
			first = false
			return late
		}
		return 0
	})
}

// The connection broke, but its buffers deliver the acquire after the release has come over the next one.
func TestF02AcquireThatArrivesAfterItsReleaseIsRefused(t *testing.T) {
	for name, use := range map[string]func(w *world, p *process){
		"asked again, granted, released": func(w *world, p *process) { w.release(p.lock("n", rwlock.Write)) },
		"tried once, unknown": func(w *world, p *process) {
			_, err := p.TryLock(w.ctx, "n")
			require.True(w.t, rwlock.Indeterminate(err))
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, late := range []time.Duration{7 * time.Second, 9 * time.Second, 11 * time.Second} {
				inFakeTime(t, func(w *world) {
					p, q := w.process(), w.process()
					p.warmUp()
					seen := p.scriptsSeen()
					p.delayFirst(late) // what the client sends from then on is not late
					start := time.Now()
					use(w, p)
					require.Less(w.t, time.Since(start), late, "a silent server is found before that")
					w.pass(late - time.Since(start))
					var order []scripts.Name
					for len(seen) > 0 {
						order = append(order, <-seen)
					}
					require.Equal(w.t, scripts.Release, order[len(order)-2], "%v", order)
					require.Equal(w.t, scripts.Acquire, order[len(order)-1], "the acquire was not late: %v", order)
					require.Empty(w.t, w.inspect("n").Holders, "a ghost holds the lock")
					require.NoError(w.t, q.acquireOnce("n"))
					w.pass(2 * w.ttl)
					w.onlyTokensLeft()
				})
			}
		})
	}
}
