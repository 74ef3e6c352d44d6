package rwlock_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/rwlock"
)

// ways are the kinds of clients: from Dial, and one that waits long for answers.
func ways(t *testing.T, test func(w *world, p *process)) {
	t.Helper()
	for what, tuned := range map[string]bool{"from Dial": true, "another client": false} {
		subtestInFakeTime(t, what, func(w *world) {
			p := w.ProcessOver(testkit.Net{Tuned: tuned, Change: func(o *rueidis.ClientOption) {
				o.ConnWriteTimeout = 30 * time.Second
			}})
			p.WarmUp()
			for range 70 { // each connection of the client is open
				p.Section("warm")
			}
			test(w, p)
		})
	}
}

// Close ends a call whose server hangs, and no acquisition outlasts it.
func TestNoLockOutlastsClose(t *testing.T) {
	ways(t, func(w *world, p *process) {
		w.Mini.Freeze()
		asked := []*pending{p.Acquire(w.Ctx, "n", rwlock.Write), p.Acquire(w.Soon(time.Hour), "m", rwlock.Read)}
		w.Pass(10 * time.Millisecond)
		require.NoError(w, p.Close())
		w.Settle()
		for _, a := range asked {
			require.False(w, a.IsWaiting())
			require.ErrorIs(w, a.Result(), rwlock.ErrClosed)
		}
		w.Mini.Thaw()
	})
}

// Close waits for a connection that subscribes beside the releases, and not after them.
func TestCloseDoesNotWaitForASubscription(t *testing.T) {
	for _, at := range []string{"HELLO", "EVAL", "SUBSCRIBE"} {
		t.Run(at, func(t *testing.T) {
			ways(t, func(w *world, p *process) {
				held := w.Process().Take("n", rwlock.Write)
				hangs := make(chan struct{})
				p.Link.OnCommand(func(cmd []string) {
					if strings.EqualFold(cmd[0], at) {
						p.Link.OnCommand(nil)
						w.Mini.Freeze()
						close(hangs)
					}
				})
				p.Acquire(w.Ctx, "n", rwlock.Write)
				<-hangs
				w.Settle()
				began := time.Now()
				require.NoError(w, p.Close())
				require.LessOrEqual(w, time.Since(began), 2*time.Second, "the release timeout")
				w.Mini.Thaw()
				w.Release(held)
			})
		})
	}
}

// Close gives up a connection that is being opened for its releases, whose server accepts it and hangs. The client
// would wait for longer than the release timeout.
func TestCloseGivesUpAConnection(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := tuned(w)
		p.Take("n", rwlock.Write)
		p.Link.Cut()
		w.Mini.Freeze()
		began := time.Now()
		require.NoError(w, p.Close())
		require.LessOrEqual(w, time.Since(began), 2*time.Second, "the release timeout")
		w.Mini.Thaw()
	})
}

// A connection that a closed locker has opened serves the other lockers of its client.
func TestCloseLeavesAnOpenConnection(t *testing.T) {
	inFakeTime(t, func(w *world) {
		first := tuned(w)
		second := w.ProcessWith(first.Link, first.Client)
		first.Link.Cut()
		w.Pass(time.Second)
		first.Section("n")
		require.NoError(w, first.Close())
		first.Link.Refuse()
		lease, err := second.Lock(w.Soon(time.Minute), "n")
		require.NoError(w, err)
		w.Release(lease)
	})
}
