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

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// User code, Logger and Trace, runs on no goroutine that a deadline, a renewal, a hand-off or a caller depends on.

// sink is where a user's handler or hooks stand still, until the test has returned or failed.
type sink struct{ opened chan struct{} }

func newSink(w *world) *sink {
	s := &sink{opened: make(chan struct{})}
	context.AfterFunc(w.Ctx, func() { close(s.opened) }) // before the cleanups, which close the lockers
	return s
}

func (s *sink) event(context.Context, rwlock.TraceEvent) { <-s.opened }

func (s *sink) trace() rwlock.Option {
	return rwlock.WithTrace(&rwlock.Trace{
		Waiting: s.event, Acquired: s.event, Renewed: s.event, Released: s.event,
		Lost: func(ctx context.Context, e rwlock.TraceEvent, _ *rwlock.LostError) { s.event(ctx, e) },
	})
}

func (s *sink) logger() rwlock.Option { return rwlock.WithLogger(slog.New(blockedHandler{s})) }

type blockedHandler struct{ *sink }

func (h blockedHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h blockedHandler) Handle(context.Context, slog.Record) error {
	<-h.opened
	return nil
}
func (h blockedHandler) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h blockedHandler) WithGroup(string) slog.Handler      { return h }

// blockedWith is every way in which user code can stand still for ever.
var blockedWith = map[string]func(s *sink) []rwlock.Option{
	"log handler":           func(s *sink) []rwlock.Option { return []rwlock.Option{s.logger()} },
	"trace":                 func(s *sink) []rwlock.Option { return []rwlock.Option{s.trace()} },
	"log handler and trace": func(s *sink) []rwlock.Option { return []rwlock.Option{s.logger(), s.trace()} },
}

// inFakeTimeBlocked runs a test for every way, with a process whose user code stands still.
func inFakeTimeBlocked(t *testing.T, test func(w *world, p *process)) {
	for way, options := range blockedWith {
		t.Run(way, func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				test(w, w.Process(options(newSink(w))...))
			})
		})
	}
}

func TestDeadlinesHoldWithUserCodeBlocked(t *testing.T) {
	inFakeTimeBlocked(t, func(w *world, p *process) {
		q := w.Process()
		names := []string{"a", "b", "c"}
		ends, next := map[string]*ending{}, map[string]*pending{}
		for _, n := range names {
			ends[n] = watch(p.Take(n, rwlock.Write))
		}
		p.Link.Blackhole(testredis.Both)
		for _, n := range names {
			next[n] = q.Acquire(w.Ctx, n, rwlock.Write)
		}
		for _, n := range names {
			next[n].Granted()
			w.Settle()
			require.True(w, ends[n].before(next[n].At.Add(1)), "%q: another holds it while the old context lives", n)
		}
	})
}

func TestRenewalsGoOnWithUserCodeBlocked(t *testing.T) {
	inFakeTimeBlocked(t, func(w *world, p *process) {
		leases := []*rwlock.Lease{p.Take("a", rwlock.Write), p.Take("b", rwlock.Read)}
		w.Pass(5 * w.TTL)
		for _, lease := range leases {
			require.NoError(w, lease.Err(), "%q", lease.Name())
		}
		require.Greater(w, p.Stats().Renewed, uint64(20), "three renewals per lease and TTL")
	})
}

func TestHandOffsGoOnWithUserCodeBlocked(t *testing.T) {
	inFakeTimeBlocked(t, func(w *world, p *process) {
		held := w.Process().Take("n", rwlock.Write)
		first, second := p.Queue("n", rwlock.Write), p.Queue("n", rwlock.Write)
		released := time.Now()
		w.Release(held)
		w.Release(first.Granted())
		w.Release(second.Granted())
		require.Less(w, second.At.Sub(released), w.Refresh())
	})
}

// told is what the hooks of a locker were told, by hold, in the order in which they were.
type told struct {
	mu     sync.Mutex
	events map[string][]string
	inside atomic.Int32 // hooks that run at this moment
	beside atomic.Int32 // how often one ran beside another
	slow   time.Duration
}

func (o *told) hook(what string) func(context.Context, rwlock.TraceEvent) {
	return func(_ context.Context, e rwlock.TraceEvent) {
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
		Lost: func(ctx context.Context, e rwlock.TraceEvent, _ *rwlock.LostError) { lost(ctx, e) },
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
		return traced(rwlock.Trace{Waiting: func(context.Context, rwlock.TraceEvent) { act() }})
	},
	"Acquired": func(act func()) rwlock.Option {
		return traced(rwlock.Trace{Acquired: func(context.Context, rwlock.TraceEvent) { act() }})
	},
	"Renewed": func(act func()) rwlock.Option {
		return traced(rwlock.Trace{Renewed: func(context.Context, rwlock.TraceEvent) { act() }})
	},
	"Released": func(act func()) rwlock.Option {
		return traced(rwlock.Trace{Released: func(context.Context, rwlock.TraceEvent) { act() }})
	},
	"Lost": func(act func()) rwlock.Option {
		return traced(rwlock.Trace{Lost: func(context.Context, rwlock.TraceEvent, *rwlock.LostError) { act() }})
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
		p := w.Process(traced(rwlock.Trace{Released: func(context.Context, rwlock.TraceEvent) {
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

// everyEvent makes a lease that is lost, one that is renewed and released, and one that is waited for.
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

// The events that wait for a hook or a log handler are bounded. Those that find no room are counted.
func TestEventsThatOverflowAreCounted(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.Process(newSink(w).trace())
		const sections = 20_000
		for range sections {
			w.Release(p.Take("n", rwlock.Write))
			if p.Stats().EventsDropped > 0 {
				break
			}
		}
		require.Positive(w, p.Stats().EventsDropped, "after %d sections with a hook that never returns", sections)
		require.Zero(w, w.Process().Stats().EventsDropped)
	})
}
