package rwlock_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testkit"
	"github.com/seed74116694/fencelock/internal/testredis"
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

func (s *sink) event(rwlock.TraceEvent) { <-s.opened }

func (s *sink) trace() rwlock.Option {
	return rwlock.WithTrace(&rwlock.Trace{
		Waiting: s.event, Acquired: s.event, Renewed: s.event, Released: s.event,
		Lost: func(e rwlock.TraceEvent, _ *rwlock.LostError) { s.event(e) },
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

// A hook may want what the caller of the locker holds at that moment.
func TestHooksRunOnNoCallersGoroutine(t *testing.T) {
	inFakeTime(t, func(w *world) {
		mutex, given := make(chan struct{}, 1), make(chan struct{}) // of the user; given up where nothing goes on
		hook := func(rwlock.TraceEvent) {
			select {
			case mutex <- struct{}{}:
				<-mutex
			case <-given:
			}
		}
		p := w.Process(rwlock.WithTrace(&rwlock.Trace{Acquired: hook, Renewed: hook, Released: hook}))
		over := make(chan struct{})
		go func() {
			defer close(over)
			mutex <- struct{}{}
			if lease, err := p.Lock(w.Ctx, "n"); err == nil {
				_ = lease.Renew(w.Ctx)
				_ = lease.Release(w.Ctx)
			}
			<-mutex
		}()
		limit := time.NewTimer(testkit.Patience)
		defer limit.Stop()
		select {
		case <-over:
		case <-limit.C:
			close(given)
			<-over
			require.Fail(w, "Lock, Renew or Release waited for a hook")
		}
	})
}
