package rwlock_test

import (
	"context"
	"log/slog"
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

func (s *sink) logger() rwlock.Option {
	return rwlock.WithLogger(slog.New(handler(func() { <-s.opened })))
}

// handler is a log handler of a user, which acts.
type handler func()

func (h handler) Enabled(context.Context, slog.Level) bool { return true }
func (h handler) Handle(context.Context, slog.Record) error {
	h()
	return nil
}
func (h handler) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h handler) WithGroup(string) slog.Handler      { return h }

// blockedWith is every way in which user code can stand still for ever.
var blockedWith = map[string]func(s *sink) []rwlock.Option{
	"log handler":           func(s *sink) []rwlock.Option { return []rwlock.Option{s.logger()} },
	"trace":                 func(s *sink) []rwlock.Option { return []rwlock.Option{s.trace()} },
	"log handler and trace": func(s *sink) []rwlock.Option { return []rwlock.Option{s.logger(), s.trace()} },
}

func TestNothingWaitsForUserCodeThatStandsStill(t *testing.T) {
	eachInFakeTime(t, blockedWith, func(w *world, options func(*sink) []rwlock.Option) {
		p, q := w.Process(options(newSink(w))...), w.Process()
		leases := []*rwlock.Lease{p.Take("a", rwlock.Write), p.Take("b", rwlock.Read)}
		w.Pass(5 * w.TTL)
		require.Greater(w, p.Stats().Renewed, uint64(20), "three renewals per lease and TTL")

		held := q.Take("n", rwlock.Write)
		first, second := p.Queue("n", rwlock.Write), p.Queue("n", rwlock.Write)
		released := time.Now()
		w.Release(held)
		w.Release(first.Granted())
		w.Release(second.Granted())
		require.Less(w, second.At.Sub(released), w.Refresh())

		require.NoError(w, leases[0].Err())
		require.NoError(w, leases[1].Err())
		end, next := watch(leases[0]), q.Queue("a", rwlock.Write)
		p.Link.Blackhole(testredis.Both)
		next.Granted()
		w.Settle()
		require.True(w, end.before(next.At.Add(1)), "another holds it while the old context lives")
	})
}

// acting are the options whose function calls act.
func acting(act func()) map[string]rwlock.Option {
	event := func(context.Context, rwlock.TraceEvent) { act() }
	lost := func(context.Context, rwlock.TraceEvent, *rwlock.LostError) { act() }
	return map[string]rwlock.Option{
		"Waiting": traced(rwlock.Trace{Waiting: event}), "Acquired": traced(rwlock.Trace{Acquired: event}),
		"Renewed": traced(rwlock.Trace{Renewed: event}), "Released": traced(rwlock.Trace{Released: event}),
		"Lost": traced(rwlock.Trace{Lost: lost}), "log handler": rwlock.WithLogger(slog.New(handler(act))),
	}
}

// Close may be called by any hook and by a log handler, and ends there as it does elsewhere.
func TestCloseInsideAHook(t *testing.T) {
	server := testredis.Start(t)
	for what := range acting(nil) {
		t.Run(what, func(t *testing.T) {
			client := got(rwlock.Dial(server.Addr(), rueidis.ClientOption{})).orFail(t)
			var locker *rwlock.Locker
			closed := make(chan struct{})
			closes := sync.OnceFunc(func() {
				_ = locker.Close()
				close(closed)
			})
			locker = got(rwlock.New(client, acting(closes)[what])).orFail(t)
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
