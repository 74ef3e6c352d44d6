package rwlock_test

import (
	"context"
	"maps"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/rwlock"
)

// spentContext is the context of a request that a web framework uses again: once the request is over, it panics.
type spentContext struct {
	context.Context
	over atomic.Bool
}

func (c *spentContext) Value(key any) any {
	if c.over.Load() {
		panic("the request is over")
	}
	return c.Context.Value(key)
}

// spending returns such a context.
func spending(w *world) *spentContext {
	ctx, cancel := context.WithCancel(w.Ctx)
	c := &spentContext{Context: ctx}
	w.Cleanup(func() {
		c.over.Store(false)
		cancel()
	})
	return c
}

// asking is a client with a hook that asks each context for a value, as a tracer does.
type asking struct{ rueidis.Client }

func (c asking) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	_ = ctx.Value(contextKey("span"))
	return c.Client.Do(ctx, cmd)
}

func (c asking) DoMulti(ctx context.Context, all ...rueidis.Completed) []rueidis.RedisResult {
	_ = ctx.Value(contextKey("span"))
	return c.Client.DoMulti(ctx, all...)
}

// withAsking is a test with a process whose client asks for values, and another one.
func withAsking(test func(w *world, p, q *process)) func(w *world) {
	return func(w *world) {
		link := w.NewLink()
		client := expect.NoError(rwlock.Dial("", link.Option())).In(w)
		w.Cleanup(client.Close)
		wrapped, err := rwlock.Wrap(client, func(c rueidis.Client) rueidis.Client { return asking{c} })
		require.NoError(w, err)
		test(w, w.ProcessWith(link, wrapped), w.Process())
	}
}

// swallow runs f as a web server runs a handler.
func swallow(f func()) {
	defer func() { _ = recover() }()
	f()
}

// spentEnd ends locks of the process while a context below them panics.
type spentEnd func(w *world, p *process, ctx *spentContext)

// spend is work in which the request of its context ends.
func spend(ctx *spentContext) func(context.Context) error {
	return func(context.Context) error {
		ctx.over.Store(true)
		return nil
	}
}

// spentNames are the locks that the ends take.
func spentNames() []string { return []string{"a", "b", "c", "d"} }

// spentEndsOfLeases are the ends of leases.
func spentEndsOfLeases() map[string]spentEnd {
	return map[string]spentEnd{
		"Do": func(_ *world, p *process, ctx *spentContext) { swallow(func() { _ = p.Do(ctx, "a", spend(ctx)) }) },
		"DoAll": func(_ *world, p *process, ctx *spentContext) {
			swallow(func() { _ = p.DoAll(ctx, rwlock.Writes(spentNames()...), spend(ctx)) })
		},
		"Release": func(w *world, p *process, ctx *spentContext) {
			lease := p.Take("a", rwlock.Write)
			_ = lease.Context(ctx)
			ctx.over.Store(true)
			swallow(func() { _ = lease.Release(w.Ctx) })
		},
		"Release with it": func(_ *world, p *process, ctx *spentContext) {
			lease := p.Take("a", rwlock.Write)
			ctx.over.Store(true)
			swallow(func() { _ = lease.Release(ctx) })
		},
		"a limit, on a goroutine of a timer": func(w *world, p *process, ctx *spentContext) {
			lease := expect.NoError(p.Lock(w.Ctx, "a", rwlock.WithMaxHold(time.Second))).In(w)
			below := lease.Context(ctx)
			ctx.over.Store(true)
			w.Pass(2 * time.Second)
			require.ErrorIs(w, lease.Err(), rwlock.ErrLost)
			<-below.Done()
		},
		"Close": func(w *world, p *process, ctx *spentContext) {
			for _, name := range spentNames() {
				_ = p.Take(name, rwlock.Write).Context(ctx)
			}
			ctx.over.Store(true)
			swallow(func() { _ = p.Close() })
			require.NoError(w, p.Close())
		},
	}
}

// spentEndsOfMutexes are the ends of what goroutines share.
func spentEndsOfMutexes() map[string]spentEnd {
	return map[string]spentEnd{
		"Unlock": func(w *world, p *process, ctx *spentContext) {
			mu := p.RWMutex("a")
			require.NoError(w, mu.Lock(w.Ctx))
			_ = mu.Context(ctx)
			ctx.over.Store(true)
			swallow(func() { _ = mu.Unlock(w.Ctx) })
			require.NoError(w, mu.Lock(w.Soon(time.Second)))
			require.NoError(w, mu.Unlock(w.Ctx))
		},
		"Unlock with it": func(w *world, p *process, ctx *spentContext) {
			mu := p.RWMutex("a")
			require.NoError(w, mu.Lock(w.Ctx))
			ctx.over.Store(true)
			swallow(func() { _ = mu.Unlock(ctx) })
			require.NoError(w, mu.Lock(w.Soon(time.Second)))
			require.NoError(w, mu.Unlock(w.Ctx))
		},
		"RWMutex.Do": func(_ *world, p *process, ctx *spentContext) {
			swallow(func() { _ = p.RWMutex("a").Do(ctx, spend(ctx)) })
		},
		"a limit of an RWMutex": func(w *world, p *process, ctx *spentContext) {
			mu := p.RWMutex("a", rwlock.WithMaxHold(time.Second))
			require.NoError(w, mu.Lock(w.Ctx))
			below := mu.Context(ctx)
			ctx.over.Store(true)
			w.Pass(2 * time.Second)
			<-below.Done()
			require.ErrorIs(w, mu.Unlock(w.Ctx), rwlock.ErrLost)
		},
	}
}

// What ends is given back although the context of a caller panics meanwhile, at once and in full: its locks are free,
// and the process goes on with them.
func TestEndsDoNotDependOnACallersContext(t *testing.T) {
	ends := spentEndsOfLeases()
	maps.Copy(ends, spentEndsOfMutexes())
	for what, end := range ends {
		subtestInFakeTime(t, what, withAsking(func(w *world, p, q *process) {
			end(w, p, spending(w))
			for _, name := range spentNames() {
				w.Release(expect.NoError(q.Lock(w.Soon(100*time.Millisecond), name)).In(w))
			}
		}))
	}
}
