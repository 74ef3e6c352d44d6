package rwlock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/rwlock"
)

// A server with a durable log answers a write once the log has it. Its messages do not wait for that, so a failover may
// lose a hand-off that its waiter has heard of.

// inside is what a caller sees under the lock.
type inside struct {
	ctx   context.Context // ends with the lease
	token fencing.Token
	leave func(context.Context) error
}

// waits asks for the lock "n" and returns when it has it.
type waits func(ctx context.Context) (inside, error)

func byLease(take func(context.Context, string, ...rwlock.LockOption) (*rwlock.Lease, error)) waits {
	return func(ctx context.Context) (inside, error) {
		lease, err := take(ctx, "n")
		if err != nil {
			return inside{}, err
		}
		return inside{lease.Context(context.Background()), lease.Token(), lease.Release}, nil
	}
}

func byMutex(mu *rwlock.RWMutex, lock, unlock func(context.Context) error) waits {
	return func(ctx context.Context) (inside, error) {
		err := lock(ctx)
		return inside{mu.Context(context.Background()), mu.Token(), unlock}, err
	}
}

// handOffs are the ways to wait for the lock. Each begins while the holder has it, and waits when the result is called.
var handOffs = []struct {
	name  string
	held  rwlock.Mode // by the holder
	rival rwlock.Mode // of a third client, which the waiter excludes and the holder's release lets in
	asks  bool        // the waiter asks the server when it listens again, and notices what was lost
	begin func(p *process) waits
}{
	{"a writer behind a writer", rwlock.Write, rwlock.Write, false, func(p *process) waits { return byLease(p.Lock) }},
	{"a writer behind a reader", rwlock.Read, rwlock.Read, false, func(p *process) waits { return byLease(p.Lock) }},
	{"a reader behind a writer", rwlock.Write, rwlock.Write, false, func(p *process) waits { return byLease(p.RLock) }},
	{"an RWMutex that writes", rwlock.Write, rwlock.Write, true, func(p *process) waits {
		mu := p.RWMutex("n")
		return byMutex(mu, mu.Lock, mu.Unlock)
	}},
	{"an RWMutex that reads", rwlock.Write, rwlock.Write, true, func(p *process) waits {
		mu := p.RWMutex("n")
		return byMutex(mu, mu.RLock, mu.RUnlock)
	}},
	{"an upgrade", rwlock.Read, rwlock.Read, false, func(p *process) waits {
		lease := p.Take("n", rwlock.Read)
		return func(ctx context.Context) (inside, error) {
			err := lease.Upgrade(ctx)
			return inside{lease.Context(context.Background()), lease.Token(), lease.Release}, err
		}
	}},
	{"an upgrade of an RWMutex", rwlock.Read, rwlock.Read, true, func(p *process) waits {
		mu := p.RWMutex("n")
		require.NoError(p.W, mu.RLock(p.W.Ctx))
		return byMutex(mu, mu.Upgrade, mu.Unlock)
	}},
}

// The holder gives the lock to a waiter while the log stands still, and a failover loses that. Without the option the
// waiter believes in the hand-off, and a third client gets the lock beside it. With the option the waiter goes on
// waiting, and gets the lock after the third client, with a larger token.
func TestAHandOffThatTheLogLoses(t *testing.T) {
	for _, h := range handOffs {
		for _, confirmed := range []bool{false, true} {
			t.Run(fmt.Sprint(h.name, ", confirmed ", confirmed), func(t *testing.T) {
				inFakeTime(t, func(w *world) {
					if confirmed {
						w.Opts = append(w.Opts, rwlock.WithConfirmedHandOff())
					}
					holder, waiter, third := w.Process(), w.Process(), w.Process()
					third.WarmUp()
					makeListen(waiter)
					held := holder.Take("n", h.held)
					wait := h.begin(waiter)

					w.Mini.StallCommits()
					var got inside
					waiting := w.Call(w.Ctx, func(ctx context.Context) (err error) {
						got, err = wait(ctx)
						return err
					})
					release := w.Call(w.Ctx, held.Release)
					require.True(t, release.IsWaiting(), "for the log")

					w.Mini.LoseCommits()
					rival := third.Acquire(w.Ctx, "n", h.rival)
					if !confirmed {
						require.NoError(t, waiting.Result())
						lease := rival.Granted()
						if !h.asks {
							require.NoError(t, got.ctx.Err(), "two holders: what the failover does without the option")
						}
						_ = lease.Release(w.Ctx) // its link may just have been restored
						return
					}
					w.Eventually("one has it", func() bool { return !waiting.IsWaiting() || !rival.IsWaiting() })
					w.Pass(w.Claim() / 6) // by then the release has been repeated, and nothing was renewed
					require.NotEqual(t, waiting.IsWaiting(), rival.IsWaiting(), "one has it, and the other waits")
					if waiting.IsWaiting() {
						before := rival.Granted()
						_ = before.Release(w.Ctx)
						require.NoError(t, waiting.Result())
						require.Greater(t, got.token, before.Token())
						return
					}
					require.NoError(t, waiting.Err)
					require.NoError(t, got.ctx.Err())
					_ = got.leave(w.Ctx)
					require.Greater(t, rival.Granted().Token(), got.token)
				})
			})
		}
	}
}

// makeListen has a process wait for another lock once, so that it listens to messages and knows the server's clock.
func makeListen(p *process) {
	p.W.Helper()
	other := p.W.Process().Take("other", rwlock.Write)
	waiting := p.Queue("other", rwlock.Write)
	p.W.Release(other)
	p.W.Release(waiting.Granted())
}

// A lock that is handed over costs its waiter two commands: the acquisition and the release. The confirmation is one
// more. It takes the place of the first renewal, which is due after a third of the claim time.
func TestConfirmedHandOffCostsOneCommand(t *testing.T) {
	for _, c := range []struct {
		held             time.Duration
		plain, confirmed int
	}{{0, 2, 3}, {1500 * time.Millisecond, 3, 3}} {
		for _, confirmed := range []bool{false, true} {
			t.Run(fmt.Sprint("held for ", c.held, ", confirmed ", confirmed), func(t *testing.T) {
				inFakeTime(t, func(w *world) {
					want := c.plain
					if confirmed {
						w.Opts, want = append(w.Opts, rwlock.WithConfirmedHandOff()), c.confirmed
					}
					const way = time.Millisecond
					p := w.ProcessAt(way)
					makeListen(p)
					p.WarmUp()
					held := w.Process().Take("n", rwlock.Write)
					p.Link.ResetCalls()
					waiting := p.Queue("n", rwlock.Write)
					at := time.Now()
					w.Release(held)
					lease := waiting.Granted()
					trips := 0
					if confirmed {
						trips = 1
					}
					require.Equal(t, way+time.Duration(trips)*2*way, waiting.At.Sub(at), "the message, and a round trip")
					w.Pass(c.held)
					w.Release(lease)
					require.Equal(t, map[string]int{"EVALSHA": want}, sent(p.Link))
				})
			})
		}
	}
}
