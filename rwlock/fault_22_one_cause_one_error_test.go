package rwlock_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
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
	is   []error
	says []string
	make func(w *world, p *process) error
}

func is(all ...error) []error       { return all }
func says(parts ...string) []string { return parts }

// holdElsewhere makes another process hold "n".
func holdElsewhere(w *world) {
	w.Helper()
	w.Process().Take("n", rwlock.Write, rwlock.WithMeta("the holder's meta"))
}

func TestF22OneCauseOneError(t *testing.T) {
	for _, causes := range []map[string]cause{causesOfNoLease, causesOfTheEnd} {
		eachInFakeTime(t, causes, func(w *world, c cause) {
			var book testkit.Log
			err := c.make(w, w.Process(book.Option()))
			require.Error(w, err)
			for _, sentinel := range append(is(errShutdown), sentinels...) {
				require.Equal(w, slices.Contains(c.is, sentinel), errors.Is(err, sentinel), "%q and %q", err, sentinel)
			}
			for _, part := range c.says {
				require.ErrorContains(w, err, part)
			}
			require.NotRegexp(w, "quorum|masters?\\b", err.Error(), "there is one Redis")
			w.Settle()
			require.NotRegexp(w, "quorum|master \\d|of the masters|nil", book.String())
		})
	}
}

// Each error that carries something carries it for errors.As.
func TestF22ErrorsCarryWhatTheySay(t *testing.T) {
	inFakeTime(t, func(w *world) {
		holder, p := w.Process(), w.Process()
		held := holder.Take("n", rwlock.Write, rwlock.WithMeta("batch 7"))
		w.Pass(time.Second)
		_, err := p.Lock(w.Ctx, "n", rwlock.WithMaxWait(3500*time.Millisecond))
		contended := testkit.As[*rwlock.AcquireError](w, err)
		require.Equal(w, "n", contended.Name)
		require.Equal(w, rwlock.Write, contended.Mode)
		require.Equal(w, 3500*time.Millisecond, contended.Waited)
		require.Equal(w, 1, contended.Attempts)
		require.Equal(w, held.Owner(), contended.Holder.Owner)
		require.Equal(w, "batch 7", contended.Holder.Meta)
		require.Equal(w, rwlock.Write, contended.Holder.Mode)
		require.Equal(w, time.Second, contended.Holder.Held)

		token := held.Token()
		w.FlushAll()
		lost := testkit.As[*rwlock.LostError](w, held.Release(w.Ctx))
		require.Equal(w, rwlock.LostError{Name: "n", Token: token, Reason: rwlock.ReasonGone}, *lost)

		lease := p.Take("n", rwlock.Write)
		p.Link.Hold(testredis.Both)
		_, err = p.TryLock(w.Ctx, "n")
		for _, err := range []error{err, lease.Renew(w.Ctx)} {
			unanswered := testkit.As[*rwlock.QuorumError](w, err)
			require.Equal(w, []any{"n", 1, 0}, []any{unanswered.Name, unanswered.Need, unanswered.Got})
			require.Len(w, unanswered.Nodes, 1)
			require.Equal(w, 0, unanswered.Nodes[0].Index)
			require.Equal(w, "mini:6379", unanswered.Nodes[0].Addr)
			_ = testkit.As[*rwlock.NodeError](w, err)
			require.True(w, rwlock.Indeterminate(err))
		}
	})
}

// A node timeout is known by its type, and never taken for the end of a context.
func TestF22ANodeTimeoutHasAType(t *testing.T) {
	inFakeTime(t, withLease(func(w *world, p *process, lease *rwlock.Lease) {
		p.Link.Hold(testredis.Both)
		err := lease.Release(w.Ctx)
		require.Equal(w, 2*time.Second, testkit.As[*rwlock.NoReplyError](w, err).After)
		require.NotErrorIs(w, err, context.DeadlineExceeded)

		_, err = p.Inspect(w.Ctx, "n")
		require.Positive(w, testkit.As[*rwlock.NoReplyError](w, err).After)
	}))
}

// A release that is refused for good is known not to go on.
func TestF22AConflictAtReleaseIsNoIndeterminateEnd(t *testing.T) {
	inFakeTime(t, withLease(func(w *world, _ *process, lease *rwlock.Lease) {
		w.Command("DEL", "fencelock:{n}")
		w.Command("SET", "fencelock:{n}", "mine")
		err := lease.Release(w.Ctx)
		require.ErrorIs(w, err, rwlock.ErrConflict)
		require.False(w, rwlock.Indeterminate(err))
		require.NotContains(w, err.Error(), "background")
	}))
}
