package rwlock_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

// Every acquisition that begins ends in one event, with the error of its call.
func TestEachAcquisitionThatGivesUpIsReportedOnce(t *testing.T) {
	begun := maps.Clone(causesOfNoLease)
	delete(begun, "an option")
	eachInFakeTime(t, begun, func(w *world, c cause) {
		var d testkit.Trace
		p := w.Process(d.Option())
		err := c.make(w, p)
		w.Settle()
		var ends []testkit.Event
		for _, e := range d.Events() {
			if e.What == "failed" || e.What == "acquired" && !errors.Is(err, rwlock.ErrNotAcquired) {
				ends = append(ends, e)
			}
		}
		require.Len(w, ends, 1)
		require.Zero(w, ends[0].Token)
		require.Len(w, ends[0].Hold, 26)
		for _, target := range append([]error{errShutdown}, sentinels...) {
			require.Equal(w, errors.Is(err, target), errors.Is(ends[0].Err, target), "%v: %v", target, ends[0].Err)
		}
		counted := map[error]rwlock.FailedStats{
			rwlock.ErrNotAcquired: {Contended: 1}, rwlock.ErrNoQuorum: {NoQuorum: 1}, rwlock.ErrClosed: {Closed: 1},
			rwlock.ErrConflict: {Refused: 1},
		}[c.is[0]]
		require.Equal(w, counted, p.Stats().Failed)
		require.EqualValues(w, 1, p.Stats().Failed.Total())
	})
}

// What is refused before it begins, nests, or is served within the process has no end of its own.
func TestWhatIsNoAcquisitionIsNotReported(t *testing.T) {
	inFakeTime(t, withTrace(func(w *world, p *process, d *testkit.Trace) {
		require.ErrorIs(w, expect.ErrorOf(p.Lock(w.Ctx, "")), rwlock.ErrOption)
		require.ErrorIs(w, expect.ErrorOf(p.Lock(w.Ctx, "n", rwlock.WithTTL(1))), rwlock.ErrOption)
		require.NoError(w, p.Do(w.Ctx, "n", func(ctx context.Context) error {
			require.ErrorIs(w, expect.ErrorOf(p.Lock(ctx, "n")), rwlock.ErrNested)
			return nil
		}))
		nested := reentrant.New(p.Locker)
		require.NoError(w, nested.Do(w.Ctx, "a", func(ctx context.Context) error {
			return nested.Do(ctx, "a", func(context.Context) error { return nil })
		}))
		m := p.RWMutex("m")
		succeed(w, m.RLock, m.RLock)
		require.ErrorIs(w, m.TryLock(w.Ctx), rwlock.ErrNotAcquired)
		require.ErrorIs(w, m.Lock(w.Soon(time.Second)), rwlock.ErrNotAcquired)
		succeed(w, m.RUnlock, m.RUnlock)
		w.Settle()
		require.Equal(w, []string{
			"acquired n", "released n", "acquired a", "released a", "acquired m", "released m",
		}, slices.DeleteFunc(reported(d), func(event string) bool { return event == "renewed m" }))
		require.Zero(w, p.Stats().Failed)
	}))
}

// A join that finds no hold of its owner is followed by an acquisition, whose end is the one that counts.
func TestAJoinThatGoesOnIsReportedOnce(t *testing.T) {
	inFakeTime(t, withTrace(func(w *world, p *process, d *testkit.Trace) {
		nested := reentrant.New(p.Locker)
		require.NoError(w, giveBack(nested.Lock(reentrant.AsOwner(w.Ctx, reentrant.NewOwner()), "n")))
		w.Settle()
		require.Equal(w, []string{"acquired n", "released n"}, reported(d))
		require.Zero(w, p.Stats().Failed)
	}))
}

// Every event says whether its acquisition was granted at once.
func TestEventsKnowWhetherTheAcquisitionWaited(t *testing.T) {
	inFakeTime(t, withTrace(func(w *world, p *process, d *testkit.Trace) {
		first := p.Take("n", rwlock.Write)
		waits := p.Queue("n", rwlock.Write)
		require.ErrorIs(w, p.Acquire(w.Soon(time.Second), "n", rwlock.Write).Failed(), rwlock.ErrNotAcquired)
		require.ErrorIs(w, expect.ErrorOf(p.TryLock(w.Ctx, "n")), rwlock.ErrNotAcquired)
		require.NoError(w, first.Release(w.Ctx))
		require.NoError(w, waits.Granted().Release(w.Ctx))
		w.Settle()
		waited := map[string][]bool{}
		for _, e := range d.Events() {
			waited[e.What] = append(waited[e.What], e.Contended)
		}
		require.Equal(w, []bool{true, true}, waited["waiting"])
		require.Equal(w, []bool{false, true}, waited["acquired"])
		require.Equal(w, []bool{true, false}, waited["failed"], "the single attempt did not wait")
		require.Equal(w, []bool{false, true}, waited["released"])
	}))
}

type spanKey struct{}

// The functions get the values of the acquisition's context, and not its end.
func TestTraceGetsTheContextOfTheAcquisition(t *testing.T) {
	inFakeTime(t, func(w *world) {
		var spans []string
		note := func(what string) func(context.Context, rwlock.TraceEvent) {
			return func(ctx context.Context, e rwlock.TraceEvent) {
				require.NoError(w, ctx.Err(), what)
				require.Nil(w, ctx.Done(), what)
				span, _ := ctx.Value(spanKey{}).(string)
				spans = append(spans, span+" "+what+" "+e.Name)
			}
		}
		p := w.Process(rwlock.WithTrace(&rwlock.Trace{
			Waiting: note("waiting"), Acquired: note("acquired"), Released: note("released"),
			Failed:      func(ctx context.Context, e rwlock.TraceEvent, _ error) { note("failed")(ctx, e) },
			Lost:        func(ctx context.Context, e rwlock.TraceEvent, _ *rwlock.LostError) { note("lost")(ctx, e) },
			AtRisk:      func(ctx context.Context, e rwlock.TraceEvent, _ time.Duration) { note("at risk")(ctx, e) },
			Unreachable: func(ctx context.Context, e rwlock.TraceEvent, _ error) { note("unreachable")(ctx, e) },
		}))
		span := func(name string) (context.Context, context.CancelFunc) {
			return context.WithCancel(context.WithValue(w.Ctx, spanKey{}, name))
		}
		first, end := span("first")
		a := expect.NoError(p.Lock(first, "a")).In(w)
		end()
		second, end := span("second")
		waits := p.Acquire(second, "a", rwlock.Write)
		w.Eventually("it waits", func() bool { return p.Stats().Waiting == 1 })
		end()
		require.ErrorIs(w, waits.Failed(), context.Canceled)
		third, end := span("third")
		m := p.RWMutex("m")
		require.NoError(w, m.Lock(third))
		end()
		require.NoError(w, m.Unlock(w.Ctx))
		p.Link.Blackhole(testredis.Both)
		fourth, end := span("fourth")
		defer end()
		p.Acquire(fourth, "b", rwlock.Write)
		w.UntilOver(a)
		w.Settle()
		require.Equal(w, []string{
			"first acquired a", "second waiting a", "second failed a", "third acquired m", "third released m",
		}, spans[:5])
		require.Contains(w, spans, "first at risk a")
		require.Contains(w, spans, "first lost a")
		require.Contains(w, spans, "fourth unreachable b")
	})
}

// atRisk returns what is left of each lease that was reported as at risk.
func atRisk(d *testkit.Trace) (left []time.Duration) {
	for _, e := range d.Events() {
		if e.What == "at risk" {
			left = append(left, e.Left)
		}
	}
	return left
}

// A lease that is not renewed is at risk once, until a renewal is confirmed.
func TestALeaseAtRiskIsReportedOnce(t *testing.T) {
	inFakeTime(t, withTrace(func(w *world, p *process, d *testkit.Trace) {
		lease := p.Take("n", rwlock.Write)
		w.Pass(3 * w.TTL)
		require.Empty(w, atRisk(d))
		for times := 1; times <= 2; times++ {
			require.NoError(w, lease.Renew(w.Ctx))
			p.Link.Hold(testredis.Both)
			w.Pass(time.Until(lease.Deadline()) - w.TTL/3 - time.Millisecond)
			require.Len(w, atRisk(d), times-1, "too early")
			w.Pass(time.Millisecond)
			require.Len(w, atRisk(d), times)
			require.Equal(w, (w.TTL / 3).Round(time.Millisecond), atRisk(d)[times-1].Round(time.Millisecond))
			w.Pass(w.TTL/3 - 100*time.Millisecond)
			require.Len(w, atRisk(d), times, "although more renewals have failed")
			p.Link.Restore()
			w.Pass(3 * w.TTL)
			require.NoError(w, lease.Err())
			require.Len(w, atRisk(d), times, "the renewals are confirmed again")
		}
		p.Link.Blackhole(testredis.Both)
		w.UntilOver(lease)
		w.Settle()
		require.Len(w, atRisk(d), 3)
		require.Equal(w, "lost", d.Events()[len(d.Events())-1].What)
	}))
}

// What ends as agreed is at no risk.
func TestWhatEndsAsAgreedIsAtNoRisk(t *testing.T) {
	inFakeTime(t, func(w *world) {
		for name, c := range map[string]struct {
			opt  rwlock.LockOption
			risk int
		}{
			"without renewal": {rwlock.WithoutRenewal(), 0},
			"bounded":         {rwlock.WithMaxHold(w.TTL * 9 / 10), 0},
			"renewed":         {rwlock.WithMeta(""), 1},
		} {
			var d testkit.Trace
			p := w.Process(d.Option())
			lease := p.Take(name, rwlock.Write, c.opt)
			p.Link.Blackhole(testredis.Both)
			w.UntilOver(lease)
			w.Settle()
			require.Len(w, atRisk(&d), c.risk, name)
		}
	})
}

// A hand-off that is not confirmed is at risk long before its TTL is.
func TestAHandOffAtRiskIsReported(t *testing.T) {
	inFakeTime(t, withTrace(func(w *world, p *process, d *testkit.Trace) {
		held := w.Process().Take("n", rwlock.Write)
		lease := p.Queue("n", rwlock.Write, rwlock.WithTTL(time.Minute)).GrantedAfter(held)
		p.Link.Hold(testredis.Both)
		w.UntilOver(lease)
		w.Settle()
		require.Len(w, atRisk(d), 1)
		require.Equal(w, w.Claim()/3, atRisk(d)[0].Round(time.Millisecond))
	}))
}

// A lease that was not to be renewed ends as planned: that is no loss in the counters and in the log.
func TestAPlannedEndIsNotCountedAsLost(t *testing.T) {
	inFakeTime(t, func(w *world) {
		var d testkit.Trace
		j := new(testkit.Log)
		p := w.Process(d.Option(), j.Option())
		lease := p.Take("n", rwlock.Write, rwlock.WithoutRenewal())
		w.UntilOver(lease)
		require.Equal(w, rwlock.ReasonExpired, w.Loss(lease.Err()).Reason)
		w.Eventually("it is reported", func() bool { return d.Last("expired") != nil })
		require.Equal(w, lease.Token(), d.Last("expired").Token)
		require.Nil(w, d.Last("lost"))
		require.Empty(w, p.Losses())
		require.Zero(w, p.Stats().Lost)
		require.EqualValues(w, 1, p.Stats().Expired)
		require.Empty(w, j.String())
	})
}

// Each loss is counted by its reason.
func TestLossesAreCountedByReason(t *testing.T) {
	inFakeTime(t, withOne(func(w *world, p *process) {
		w.UntilOver(p.Take("bounded", rwlock.Write, rwlock.WithMaxHold(time.Second)))
		taken := p.Take("taken", rwlock.Write)
		w.Command("DEL", "fencelock:{taken}")
		w.UntilOver(taken)
		cut := p.Take("cut", rwlock.Write)
		p.Link.Blackhole(testredis.Both)
		w.UntilOver(cut)
		require.Equal(w, rwlock.LostStats{Gone: 1, NotRenewed: 1, MaxHold: 1}, p.Stats().Lost)
		require.EqualValues(w, 3, p.Stats().Lost.Total())
	}))
}

// A release that is not confirmed is counted.
func TestUnconfirmedReleasesAreCounted(t *testing.T) {
	inFakeTime(t, withOne(func(w *world, p *process) {
		require.NoError(w, p.Do(w.Ctx, "n", func(context.Context) error { return nil }))
		require.Zero(w, p.Stats().Unconfirmed)
		require.NoError(w, p.Do(w.Ctx, "n", func(context.Context) error {
			p.Link.Blackhole(testredis.Both)
			return nil
		}), "it is no error of Do")
		require.EqualValues(w, 1, p.Stats().Unconfirmed)
	}))
}

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
		w.Release(first.GrantedAfter(held))
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
			client := expect.NoError(rwlock.Dial(server.Addr(), rueidis.ClientOption{})).In(t)
			var locker *rwlock.Locker
			closed := make(chan struct{})
			closes := sync.OnceFunc(func() { _ = locker.Close(); close(closed) })
			locker = expect.NoError(rwlock.New(client, testredis.Silent(), acting(closes)[what])).In(t)
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
