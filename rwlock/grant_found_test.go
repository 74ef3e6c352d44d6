package rwlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testkit"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

// foundLate are ways in which a process learns of its grant by asking again.
var foundLate = map[string]func(w *world, p *process) *pending{
	"the answer was lost": func(w *world, p *process) *pending {
		p.Link.DropNextReply(testkit.Running(scripts.Acquire))
		return p.Acquire(w.Ctx, "n", rwlock.Write, rwlock.WithoutRenewal())
	},
	"the answer was lost that it is queued": func(w *world, p *process) *pending {
		held := w.Process().Take("n", rwlock.Write)
		struck := p.Link.DropNextReply(testkit.Running(scripts.Acquire))
		waiter := p.Acquire(w.Ctx, "n", rwlock.Write, rwlock.WithoutRenewal())
		<-struck
		p.Link.Refuse()
		p.Link.Cut()
		w.Settle()
		w.Release(held)
		w.Pass(w.Claim() / 6)
		p.Link.Restore()
		return waiter
	},
	"the message was lost": func(w *world, p *process) *pending {
		held := w.Process().Take("n", rwlock.Write)
		p.Link.DropPushes(func(push []string) bool { return push[0] == "message" })
		waiter := p.Queue("n", rwlock.Write, rwlock.WithoutRenewal())
		w.Release(held)
		return waiter
	},
	"the link was down": func(w *world, p *process) *pending {
		held := w.Process().Take("n", rwlock.Write)
		waiter := p.Queue("n", rwlock.Write, rwlock.WithoutRenewal())
		p.Link.Refuse()
		p.Link.Cut()
		w.Settle()
		w.Release(held)
		w.Pass(w.Claim() / 2)
		p.Link.Restore()
		return waiter
	},
}

// A lease that is not to be renewed lasts for its TTL, also where the process asked again to learn that it has it.
func TestGrantFoundByAskingAgainLastsTheTTL(t *testing.T) {
	for how, find := range foundLate {
		t.Run(how, func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				p := w.Process()
				p.WarmUp()
				waiter := find(w, p)
				lease := waiter.Granted()
				require.NoError(w, lease.Err())
				w.UntilOver(lease)
				require.Greater(w, time.Since(waiter.At), w.TTL*8/10)
				require.LessOrEqual(w, time.Since(waiter.At), w.TTL+w.Claim())
			})
		})
	}
}

// A server that came back from an old save grants a hold once more, with another token, while its owner believes in the
// first: what renews there is not the owner's lease.
func TestRenewalOfAnotherTokenIsALoss(t *testing.T) {
	inFakeTime(t, func(w *world) {
		holder, p, other := w.Process(), w.Process(), w.Process()
		held := holder.Take("n", rwlock.Write, rwlock.WithoutRenewal())
		w.Pass(8 * time.Second)
		waiter := p.Queue("n", rwlock.Write)
		w.Pass(time.Until(held.Deadline()) - 500*time.Millisecond)
		old := w.Mini.Snapshot()
		w.Release(held)
		lease := waiter.Granted()
		first := lease.Token()
		w.Pass(100 * time.Millisecond)
		w.Mini.Rollback(old)
		w.Pass(600 * time.Millisecond) // the old holder's time is over there, and no renewal has come yet
		p.Link.DropPushes(func(push []string) bool { return push[0] == "message" })
		_, err := other.TryLock(w.Ctx, "n")
		require.ErrorIs(w, err, rwlock.ErrNotAcquired)
		state := w.Inspect("n")
		require.Len(w, state.Holders, 1)
		require.Equal(w, lease.Owner(), state.Holders[0].Owner)
		require.Greater(w, state.Token, first, "granted once more")

		w.Pass(2 * w.TTL)
		require.Equal(w, first, lease.Token())
		require.ErrorIs(w, lease.Err(), rwlock.ErrLost, "renewed with a token that is not its own")
		w.Release(other.Acquire(w.Ctx, "n", rwlock.Write).Granted())
	})
}
