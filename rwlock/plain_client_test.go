package rwlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// Any client does, or New says what is wrong with it: no call goes on after its context, whatever the client's options
// and whatever became of the server.

// plainClients are clients that were not made by rwlock.Dial.
var plainClients = map[string]func(o *rueidis.ClientOption){
	"rueidis' defaults": func(o *rueidis.ClientOption) { *o = plain(o) },
	"no pipelining": func(o *rueidis.ClientOption) {
		*o = plain(o)
		o.DisableAutoPipelining = true
	},
	"many connections": func(o *rueidis.ClientOption) { o.PipelineMultiplex = 2 },
	"small ring":       func(o *rueidis.ClientOption) { o.RingScaleEachConn = 2 },
	"made for locks":   func(*rueidis.ClientOption) {},
}

// plain keeps nothing of the options but where to connect to, and what miniredis needs.
func plain(o *rueidis.ClientOption) rueidis.ClientOption {
	return rueidis.ClientOption{
		DialCtxFn: o.DialCtxFn, InitAddress: o.InitAddress, ForceSingleClient: true, DisableCache: true,
	}
}

// dialLimit is how long rueidis dials by default, whoever waits for it.
const dialLimit = 5 * time.Second

var deadEnds = map[string]func(w *world, p *process){
	"frozen server": func(w *world, _ *process) { w.Mini.Freeze() },
	"silent link":   func(_ *world, p *process) { p.Link.Blackhole(testredis.Both) },
	"cut and silent": func(_ *world, p *process) {
		p.Link.Hold(testredis.Both)
		p.Link.Cut()
	},
}

func TestNoCallOutlastsItsContextWithAnyClient(t *testing.T) {
	for kind, change := range plainClients {
		for fault, strike := range deadEnds {
			t.Run(kind+", "+fault, func(t *testing.T) {
				inFakeTime(t, func(w *world) { outlast(w, change, strike) })
			})
		}
	}
}

func outlast(w *world, change func(*rueidis.ClientOption), strike func(*world, *process)) {
	link := w.NewLink()
	option := link.Option()
	change(&option)
	client, err := rueidis.NewClient(option)
	require.NoError(w, err)
	w.Cleanup(client.Close)
	locker, err := rwlock.New(client)
	if err != nil {
		require.ErrorIs(w, err, rwlock.ErrOption)
		require.ErrorContains(w, err, "Dial", "what to do instead")
		return
	}
	w.Cleanup(func() { _ = locker.Close() })
	p := &process{Locker: locker, Link: link, Links: []*testredis.Link{link}, Client: client, W: w}
	held := p.Take("held", rwlock.Write)
	strike(w, p)
	const limit, slack = 100 * time.Millisecond, 20 * time.Millisecond
	within := func(what string, most time.Duration, call func(ctx context.Context)) {
		ctx, cancel := context.WithTimeout(w.Ctx, limit)
		defer cancel()
		start := time.Now()
		call(ctx)
		require.LessOrEqual(w, time.Since(start), most+slack, what)
	}
	for range 2 { // the first finds the trouble, the second knows of it
		for how, take := range acquisitions(p.Locker) {
			within(how, limit, func(ctx context.Context) { _, _ = take(ctx, "other") })
		}
		within("Renew", limit, func(ctx context.Context) { _ = held.Renew(ctx) })
		within("Inspect", limit, func(ctx context.Context) { _, _ = p.Inspect(ctx, "other") })
	}
	within("Release", 2*time.Second, func(ctx context.Context) { _ = held.Release(ctx) })
	within("Close", 2*time.Second+dialLimit, func(context.Context) { _ = p.Close() })
	w.Mini.Thaw()
	p.Link.Restore()
}
