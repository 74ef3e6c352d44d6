package rwlock_test

import (
	"context"
	"errors"
	"slices"
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

// cause makes an error. is lists all sentinels that it matches, says what its text names.
type cause struct {
	name string
	make func(w *world, p *process) error
	is   []error
	says []string
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
	for _, c := range slices.Concat(causesOfNoLease, causesOfTheEnd) {
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
