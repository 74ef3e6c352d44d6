package rwlockotel_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// An acquisition that waits has a span under that of its caller, of the time that it has waited; the other ones have
// none.
func TestSpansOfWaits(t *testing.T) {
	testkit.InFakeTime(t, 1, func(w *world) {
		b := newBackend()
		telemetry := b.telemetry(w)
		p := w.Process(rwlock.WithTrace(telemetry.Trace()))
		request := func() (context.Context, trace.Span) { return b.tracers.Tracer("test").Start(w.Ctx, "request") }

		held := p.Take("n", rwlock.Write)
		_, err := p.TryLock(w.Ctx, "n")
		require.ErrorIs(w, err, rwlock.ErrNotAcquired)
		ctx, span := request()
		began := time.Now()
		waits := p.Acquire(ctx, "n", rwlock.Read)
		w.UntilWaiting("n", 1)
		w.Pass(3 * time.Second)
		require.NoError(w, held.Release(w.Ctx))
		lease := waits.Granted()
		span.End() // the caller's span may be over before the events are told
		givesUp, end := context.WithTimeout(ctx, 2*time.Second)
		_, err = p.Lock(givesUp, "n")
		end()
		require.ErrorIs(w, err, context.DeadlineExceeded)
		require.NoError(w, lease.Release(w.Ctx))
		w.Settle()

		require.Equal(w, len(b.spans.Started()), len(b.spans.Ended()))
		var spans []sdktrace.ReadOnlySpan
		for _, s := range b.spans.Ended() {
			if s.Name() == "fencelock.wait" {
				spans = append(spans, s)
			}
		}
		require.Len(w, spans, 2)
		for i, c := range []struct {
			attributes string
			status     codes.Code
			lasted     time.Duration
		}{
			{"fencelock.mode=read", codes.Unset, 3 * time.Second},
			{"error.type=contended,fencelock.mode=write", codes.Error, 2 * time.Second},
		} {
			s := spans[i]
			require.Equal(w, span.SpanContext().TraceID(), s.SpanContext().TraceID())
			require.Equal(w, span.SpanContext().SpanID(), s.Parent().SpanID())
			require.Equal(w, c.attributes, of(s.Attributes()))
			require.Equal(w, c.status, s.Status().Code)
			require.Equal(w, c.lasted, s.EndTime().Sub(s.StartTime()).Round(10*time.Millisecond))
			require.Contains(w, attributesOf(s), attribute.Key("fencelock.hold"))
		}
		require.WithinDuration(w, began, spans[0].StartTime(), 10*time.Millisecond)
		require.Equal(w, int64(lease.Token()), attributesOf(spans[0])["fencelock.token"].AsInt64())
		require.NotContains(w, attributesOf(spans[1]), attribute.Key("fencelock.token"))
	})
}

func attributesOf(s sdktrace.ReadOnlySpan) map[attribute.Key]attribute.Value {
	all := map[attribute.Key]attribute.Value{}
	for _, a := range s.Attributes() {
		all[a.Key] = a.Value
	}
	return all
}

// What endangers or ends a lease is an event of its caller's span.
func TestLossesAreEventsOfTheCallersSpan(t *testing.T) {
	testkit.InFakeTime(t, 1, func(w *world) {
		b := newBackend()
		p := w.Process(rwlock.WithTrace(b.telemetry(w).Trace()))
		ctx, span := b.tracers.Tracer("test").Start(w.Ctx, "request")
		lease, err := p.Lock(ctx, "n")
		require.NoError(w, err)
		p.Link.Blackhole(testredis.Both)
		w.UntilOver(lease)
		w.Settle()
		span.End()
		events := b.spans.Ended()[0].Events()
		require.Len(w, events, 2)
		require.Equal(w, "fencelock.at_risk", events[0].Name)
		require.Equal(w, "fencelock.lost", events[1].Name)
		require.Equal(w, "fencelock.mode=write,fencelock.reason=not renewed", of(events[1].Attributes))
		require.Equal(w, map[string]int64{"fencelock.mode=write": 1}, b.sums(w, "fencelock.at_risk"))
	})
}

func TestSpansOfSections(t *testing.T) {
	failure := errors.New("no")
	for name, c := range map[string]struct {
		work       func(w *world, ctx context.Context) error
		attributes string
		status     codes.Code
	}{
		"works": {func(*world, context.Context) error { return nil }, "", codes.Unset},
		"fails": {func(*world, context.Context) error { return failure }, "error.type=*errors.errorString", codes.Error},
		"loses the lock, and works": {func(w *world, ctx context.Context) error {
			w.FlushAll()
			<-ctx.Done()
			return nil
		}, "error.type=lost", codes.Error},
		"loses the lock, and fails": {func(w *world, ctx context.Context) error {
			w.FlushAll()
			<-ctx.Done()
			return ctx.Err()
		}, "error.type=lost", codes.Error},
		"panics": {func(*world, context.Context) error { panic(failure) }, "error.type=panic", codes.Error},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.InFakeTime(t, 1, func(w *world) {
				b := newBackend()
				telemetry := b.telemetry(w)
				p := w.Process()
				ctx, span := b.tracers.Tracer("test").Start(w.Ctx, "request")
				var inside trace.SpanContext
				section := telemetry.Section(func(ctx context.Context) error {
					inside = trace.SpanContextFromContext(ctx)
					return c.work(w, ctx)
				})
				func() {
					defer func() {
						if r := recover(); r != nil {
							require.Equal(w, failure, r)
						}
					}()
					_ = p.DoAll(ctx, rwlock.Writes("a", "b"), section)
				}()
				span.End()
				s := b.spans.Ended()[0]
				require.Equal(w, "fencelock.section", s.Name())
				require.Equal(w, s.SpanContext(), inside, "the work runs in the span")
				require.Equal(w, span.SpanContext().SpanID(), s.Parent().SpanID())
				require.Equal(w, c.attributes, of(s.Attributes()))
				require.Equal(w, c.status, s.Status().Code)
				require.Empty(w, s.Status().Description)
				require.Len(w, attributesOf(s)["fencelock.tokens"].AsInt64Slice(), 2)
			})
		})
	}
}
