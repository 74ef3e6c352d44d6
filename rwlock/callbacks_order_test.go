package rwlock_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testkit"
	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// told is what the hooks of a locker were told, by hold, in the order in which they were.
type told struct {
	mu     sync.Mutex
	events map[string][]string
	inside atomic.Int32 // hooks that run at this moment
	beside atomic.Int32 // how often one ran beside another
	slow   time.Duration
}

func (o *told) hook(what string) func(rwlock.TraceEvent) {
	return func(e rwlock.TraceEvent) {
		if o.inside.Add(1) > 1 {
			o.beside.Add(1)
		}
		time.Sleep(o.slow)
		o.mu.Lock()
		if o.events == nil {
			o.events = make(map[string][]string)
		}
		o.events[e.Hold] = append(o.events[e.Hold], what)
		o.mu.Unlock()
		o.inside.Add(-1)
	}
}

func (o *told) trace() *rwlock.Trace {
	lost := o.hook("lost")
	return &rwlock.Trace{
		Waiting: o.hook("waiting"), Acquired: o.hook("acquired"), Renewed: o.hook("renewed"), Released: o.hook("released"),
		Lost: func(e rwlock.TraceEvent, _ *rwlock.LostError) { lost(e) },
	}
}

// Slow hooks are told of everything, one event after the other, and of the end of every lease before Close returns.
func TestHooksSeeEveryEndBeforeCloseReturns(t *testing.T) {
	inFakeTime(t, func(w *world) {
		const leases = 20
		o := &told{slow: 10 * time.Millisecond}
		p := w.Process(rwlock.WithTrace(o.trace()))
		var all []*pending
		for i := range leases {
			all = append(all, p.Acquire(w.Ctx, fmt.Sprint("n", i), rwlock.Write, rwlock.WithMaxHold(time.Hour)))
		}
		for i, a := range all {
			lease := a.Granted()
			switch i % 3 {
			case 0:
				w.Release(lease)
			case 1:
				w.Command("DEL", "fencelock:{"+lease.Name()+"}") // lost at the next renewal
			}
		}
		w.Pass(w.TTL)
		require.NoError(w, p.Close())
		o.mu.Lock()
		defer o.mu.Unlock()
		require.Zero(w, o.beside.Load(), "hooks that ran beside another")
		require.Len(w, o.events, leases)
		for hold, events := range o.events {
			require.Equal(w, "acquired", events[0], "%s: %v", hold, events)
			end := events[len(events)-1]
			require.Contains(w, []string{"lost", "released"}, end, "%s: %v", hold, events)
			require.Equal(w, 1, len(events)-len(slices.DeleteFunc(slices.Clone(events), func(what string) bool {
				return what == "lost" || what == "released"
			})), "%s has one end: %v", hold, events)
		}
	})
}

// acting are the options whose function calls act.
var acting = map[string]func(act func()) rwlock.Option{
	"Waiting": func(act func()) rwlock.Option {
		return traced(rwlock.Trace{Waiting: func(rwlock.TraceEvent) { act() }})
	},
	"Acquired": func(act func()) rwlock.Option {
		return traced(rwlock.Trace{Acquired: func(rwlock.TraceEvent) { act() }})
	},
	"Renewed": func(act func()) rwlock.Option {
		return traced(rwlock.Trace{Renewed: func(rwlock.TraceEvent) { act() }})
	},
	"Released": func(act func()) rwlock.Option {
		return traced(rwlock.Trace{Released: func(rwlock.TraceEvent) { act() }})
	},
	"Lost": func(act func()) rwlock.Option {
		return traced(rwlock.Trace{Lost: func(rwlock.TraceEvent, *rwlock.LostError) { act() }})
	},
	"log handler": func(act func()) rwlock.Option { return rwlock.WithLogger(slog.New(actingHandler{act})) },
}

// Close may be called by any hook and by a log handler, and ends there as it does elsewhere.
func TestCloseInsideAHook(t *testing.T) {
	server := testredis.Start(t)
	for what, option := range acting {
		t.Run(what, func(t *testing.T) {
			client, err := rwlock.Dial(server.Addr(), rueidis.ClientOption{})
			require.NoError(t, err)
			var locker *rwlock.Locker
			closed := make(chan struct{})
			var once sync.Once
			locker, err = rwlock.New(client, option(func() {
				once.Do(func() {
					_ = locker.Close()
					close(closed)
				})
			}))
			require.NoError(t, err)
			go func() {
				for everyEvent(locker, what) { // on a busy machine not all come the first time
				}
			}()
			limit := time.NewTimer(testkit.Patience)
			defer limit.Stop()
			select {
			case <-closed:
				client.Close()
			case <-limit.C: // neither can be closed any more
				require.Fail(t, "Close did not return", "called by %s", what)
			}
		})
	}
}

// Each of two calls of Close waits for the hooks: their caller may free what the hooks use.
func TestEveryCloseWaitsForTheHooks(t *testing.T) {
	inFakeTime(t, func(w *world) {
		var over atomic.Bool
		p := w.Process(traced(rwlock.Trace{Released: func(rwlock.TraceEvent) {
			time.Sleep(time.Second) // less than the release timeout
			over.Store(true)
		}}))
		p.Take("n", rwlock.Write)
		var closes sync.WaitGroup
		for range 2 {
			closes.Go(func() {
				_ = p.Close()
				if !over.Load() {
					w.Error("Close returned while a hook ran")
				}
			})
		}
		closes.Wait()
	})
}

func traced(trace rwlock.Trace) rwlock.Option { return rwlock.WithTrace(&trace) }

type actingHandler struct{ act func() }

func (h actingHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h actingHandler) Handle(context.Context, slog.Record) error {
	h.act()
	return nil
}
func (h actingHandler) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h actingHandler) WithGroup(string) slog.Handler      { return h }

// everyEvent makes a lease that is lost, one that is renewed and released, and one that is waited for. It goes as far
// as the locker lives, and reports whether it lives on.
func everyEvent(locker *rwlock.Locker, name string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	lost, err := locker.Lock(ctx, name+" lost", rwlock.WithMaxHold(50*time.Millisecond))
	if err != nil {
		return false
	}
	<-lost.Done()
	held, err := locker.Lock(ctx, name)
	if err != nil {
		return false
	}
	_ = held.Renew(ctx)
	short, end := context.WithTimeout(ctx, 100*time.Millisecond)
	defer end()
	_, _ = locker.Lock(short, name) // waits
	return held.Release(ctx) == nil
}
