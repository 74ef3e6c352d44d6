package rwlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

// foundLate are ways in which a process learns of its grant by asking again.
var foundLate = map[string]func(w *world, p *process) *pending{
	"the answer was lost": func(w *world, p *process) *pending {
		p.link.DropNextReply(running(scripts.Acquire))
		return p.acquire(w.ctx, "n", rwlock.Write, rwlock.WithoutRenewal())
	},
	"the answer was lost that it is queued": func(w *world, p *process) *pending {
		held := w.process().lock("n", rwlock.Write)
		struck := p.link.DropNextReply(running(scripts.Acquire))
		waiter := p.acquire(w.ctx, "n", rwlock.Write, rwlock.WithoutRenewal())
		<-struck
		p.link.Refuse()
		p.link.Cut()
		w.settle()
		w.release(held)
		w.pass(w.claim() / 6)
		p.link.Restore()
		return waiter
	},
	"the message was lost": func(w *world, p *process) *pending {
		held := w.process().lock("n", rwlock.Write)
		p.link.DropPushes(func(push []string) bool { return push[0] == "message" })
		waiter := p.queue("n", rwlock.Write, rwlock.WithoutRenewal())
		w.release(held)
		return waiter
	},
	"the link was down": func(w *world, p *process) *pending {
		held := w.process().lock("n", rwlock.Write)
		waiter := p.queue("n", rwlock.Write, rwlock.WithoutRenewal())
		p.link.Refuse()
		p.link.Cut()
		w.settle()
		w.release(held)
		w.pass(w.claim() / 2)
		p.link.Restore()
		return waiter
	},
}

// A lease that is not to be renewed lasts for its TTL, also where the process asked again to learn that it has it.
func TestGrantFoundByAskingAgainLastsTheTTL(t *testing.T) {
	for how, find := range foundLate {
		t.Run(how, func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				p := w.process()
				p.warmUp()
				waiter := find(w, p)
				lease := waiter.granted()
				require.NoError(w.t, lease.Err())
				w.untilOver(lease)
				require.Greater(w.t, time.Since(waiter.at), w.ttl*8/10)
				require.LessOrEqual(w.t, time.Since(waiter.at), w.ttl+w.claim())
			})
		})
	}
}

// A server that came back from an old save grants a hold once more, with another token, while its owner believes in the
// first: what renews there is not the owner's lease.
func TestRenewalOfAnotherTokenIsALoss(t *testing.T) {
	inFakeTime(t, func(w *world) {
		holder, p, other := w.process(), w.process(), w.process()
		held := holder.lock("n", rwlock.Write, rwlock.WithoutRenewal())
		w.pass(8 * time.Second)
		waiter := p.queue("n", rwlock.Write)
		w.pass(time.Until(held.Deadline()) - 500*time.Millisecond)
		old := w.mini.Snapshot()
		w.release(held)
		lease := waiter.granted()
		first := lease.Token()
		w.pass(100 * time.Millisecond)
		w.mini.Rollback(old)
		w.pass(600 * time.Millisecond) // the old holder's time is over there, and no renewal has come yet
		p.link.DropPushes(func(push []string) bool { return push[0] == "message" })
		_, err := other.TryLock(w.ctx, "n")
		require.ErrorIs(w.t, err, rwlock.ErrNotAcquired)
		state := w.inspect("n")
		require.Len(w.t, state.Holders, 1)
		require.Equal(w.t, lease.Owner(), state.Holders[0].Owner)
		require.Greater(w.t, state.Token, first, "granted once more")

		w.pass(2 * w.ttl)
		require.Equal(w.t, first, lease.Token())
		require.ErrorIs(w.t, lease.Err(), rwlock.ErrLost, "renewed with a token that is not its own")
		w.release(other.acquire(w.ctx, "n", rwlock.Write).granted())
	})
}
