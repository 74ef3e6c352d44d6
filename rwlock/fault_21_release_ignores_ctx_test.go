package rwlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

// F21: a release ignores the end of its context. The request that took the lock is often dead when it gives it back.

func TestF21ReleaseUnderADeadContextFreesTheLock(t *testing.T) {
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	expired, cancel := context.WithDeadline(context.Background(), time.Unix(0, 0))
	defer cancel()
	everywhere(t, func(w *world) {
		for _, dead := range []context.Context{cancelled, expired} {
			p, q := w.Process(), w.Process()
			for how, giveBack := range map[string]func() error{
				"Lease.Release": func() error { return p.Take("n", rwlock.Write).Release(dead) },
				"Lease.Release of a reader": func() error {
					return p.Take("n", rwlock.Read).Release(dead)
				},
				"RWMutex.Unlock": func() error {
					m := p.RWMutex("n")
					require.NoError(w, m.Lock(w.Ctx))
					return m.Unlock(dead)
				},
				"RWMutex.RUnlock": func() error {
					m := p.RWMutex("n")
					require.NoError(w, m.RLock(w.Ctx))
					return m.RUnlock(dead)
				},
				"Do": func() error {
					ctx, cancel := context.WithCancel(w.Ctx)
					return p.Do(ctx, "n", func(context.Context) error { cancel(); return nil })
				},
				"a context that dies first": func() error {
					ctx, cancel := context.WithCancel(w.Ctx)
					lease := p.Acquire(ctx, "n", rwlock.Write).Granted()
					work := lease.Context(ctx)
					cancel()
					<-work.Done()
					require.NoError(w, lease.Err(), "the end of a context is not the end of the lease")
					return lease.Release(ctx)
				},
			} {
				require.NoError(w, giveBack(), how)
				require.NoError(w, q.TryOnce("n"), "after %s", how)
			}
			w.OnlyTokensLeft()
		}
	})
}

// A server that does not answer is waited for as long as the release timeout says, and then in the background.
func TestF21ReleaseHasItsOwnTimeout(t *testing.T) {
	inFakeTime(t, func(w *world) {
		const limit = 700 * time.Millisecond
		p := w.Process(rwlock.WithReleaseTimeout(limit))
		lease := p.Take("n", rwlock.Write)
		next := w.Process().Queue("n", rwlock.Write)
		p.Link.Hold(testredis.Both)
		start := time.Now()
		err := lease.Release(w.Ctx)
		require.Equal(w, limit, time.Since(start))
		require.ErrorIs(w, err, rwlock.ErrNoQuorum)
		require.ErrorContains(w, err, "no reply in 700ms")
		require.ErrorContains(w, err, `"n"`)
		require.NotErrorIs(w, err, context.DeadlineExceeded)
		require.True(w, rwlock.Indeterminate(err))
		require.ErrorIs(w, lease.Err(), rwlock.ErrReleased)
		p.Link.Restore()
		w.Release(next.Granted())
		require.Less(w, time.Since(start), w.TTL, "freed by the release in the background, not by the end of its TTL")
		w.OnlyTokensLeft()
	})
}

// A release that the server has not answered goes on after the call, so that the lock is free before its TTL is over.
func TestF21AReleaseWithoutAnAnswerIsSentAgain(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.Process()
		lease := p.Take("n", rwlock.Write)
		struck := p.Link.DropNextCommand(testkit.Running("release"))
		p.Link.Refuse() // so the client cannot send it again in time
		over := w.Call(w.Ctx, lease.Release)
		<-struck
		require.Error(w, over.Result())
		p.Link.Restore()
		w.Pass(w.TTL / 4)
		require.Empty(w, w.Inspect("n").Holders)
	})
}

// valuesOf is a client that keeps the value of each context with which a release is sent.
type valuesOf struct {
	rueidis.Client
	key  any
	seen []any
}

func (c *valuesOf) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	if testkit.Running(scripts.Release)(cmd.Commands()) {
		c.seen = append(c.seen, ctx.Value(c.key))
	}
	return c.Client.Do(ctx, cmd)
}

// The values of a context that has ended reach the client too, for its hooks, where the request is sent alone.
func TestF21ReleaseKeepsTheValuesOfItsContext(t *testing.T) {
	inFakeTime(t, func(w *world) {
		type key struct{}
		link := w.NewLink()
		client := &valuesOf{Client: link.Client(t), key: key{}}
		p := w.ProcessWith(link, client)
		for range 64 { // until it counts as connected, and the request is sent alone
			p.WarmUp()
		}
		client.seen = nil
		ctx, cancel := context.WithCancel(context.WithValue(w.Ctx, key{}, "request"))
		lease := p.Take("n", rwlock.Write)
		cancel()
		require.NoError(w, lease.Release(ctx))
		require.Equal(w, []any{"request"}, client.seen)
	})
}
