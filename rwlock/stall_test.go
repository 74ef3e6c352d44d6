package rwlock_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/rwlock"
)

// A server stands still while callers with short deadlines go on asking. What they have given up before it left is
// never sent, so it costs neither memory meanwhile nor time afterwards: another process has the lock at once.
func TestCallersThatGiveUpLeaveNothingBehind(t *testing.T) {
	for _, plain := range []bool{false, true} {
		inFakeTime(t, func(w *world) {
			p := w.ProcessOver(testkit.Net{Tuned: !plain})
			for range 70 { // all connections stand
				p.WarmUp()
			}
			other := w.Process()
			other.WarmUp()
			const callers = 20
			before := runtime.NumGoroutine()
			w.Mini.Freeze()
			w.ResetCalls()
			var all sync.WaitGroup
			for range callers {
				all.Go(func() {
					for begun := time.Now(); time.Since(begun) < 3*time.Second; {
						ctx, cancel := context.WithTimeout(w.Ctx, 5*time.Millisecond)
						lease, err := p.Lock(ctx, "x")
						cancel()
						if err == nil {
							w.Release(lease)
						}
					}
				})
			}
			all.Wait()
			require.Less(w, runtime.NumGoroutine(), before+5*callers)
			w.Mini.Thaw()
			begun := time.Now()
			lease, err := other.Lock(w.Ctx, "x")
			require.NoError(w, err)
			require.Less(w, time.Since(begun), 100*time.Millisecond)
			w.Release(lease)
			w.Pass(w.TTL)
			require.Less(w, w.ScriptCalls()[0], 10*callers, "of 12,000 attempts")
		})
	}
}

// A waiter gives up while its server cannot be reached for calls. The message that hands it the lock shows that the
// server serves again, so its release follows at once, whatever the releases have to wait for by then.
func TestAHandOffToAWaiterThatGaveUpIsReleasedAtOnce(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.Process()
		for range 10 {
			holder := w.Process().Take("n", rwlock.Write)
			ctx, cancel := context.WithCancel(w.Ctx)
			waiter := p.Acquire(ctx, "n", rwlock.Write)
			w.UntilWaiting("n", 1)
			next := w.Process().Queue("n", rwlock.Write)
			struck := p.Link.DropNextCommand(testkit.Running("release"))
			p.Link.Refuse() // new connections; messages arrive over one that stands
			cancel()
			<-struck
			require.Error(w, waiter.Failed())
			w.Pass(1500 * time.Millisecond)
			p.Link.Restore()
			begun := time.Now()
			w.Release(holder)
			w.Release(next.Granted())
			require.Less(w, time.Since(begun), 50*time.Millisecond)
		}
	})
}
