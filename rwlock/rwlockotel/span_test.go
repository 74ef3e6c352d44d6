package rwlockotel_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/rwlock/rwlockotel"
)

// An acquisition that waits has a span under that of its caller, of its time; the other ones have none.
func TestSpansOfWaits(t *testing.T) {
	testkit.InFakeTime(t, 1, func(w *world) {
		b := newBackend()
		p := w.Process(rwlock.WithTrace(b.telemetry(w).Trace()))
		request := func() (context.Context, trace.Span) { return b.tracers.Tracer("test").Start(w.Ctx, "request") }

		held := p.Take("n", rwlock.Write)
		require.ErrorIs(w, expect.ErrorOf(p.TryLock(w.Ctx, "n")), rwlock.ErrNotAcquired)
		ctx, span := request()
		began := time.Now()
		waits := p.Acquire(ctx, "n", rwlock.Read)
		w.UntilWaiting("n", 1)
		w.Pass(3 * time.Second)
		require.NoError(w, held.Release(w.Ctx))
		lease := waits.Granted()
		span.End() // the caller's span may be over before the events are told
		givesUp, end := context.WithTimeout(ctx, 2*time.Second)
		_, err := p.Lock(givesUp, "n")
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
		lease := expect.NoError(p.Lock(ctx, "n")).In(w)
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
	type section struct {
		work       func(w *world, ctx context.Context) error
		attributes string
		status     codes.Code
	}
	testkit.EachInFakeTime(t, 1, map[string]section{
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
	}, func(w *world, c section) {
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
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type world = testkit.World

// backend is what an application exports to: providers that keep all in memory.
type backend struct {
	reader  *metric.ManualReader
	meters  *metric.MeterProvider
	spans   *tracetest.SpanRecorder
	tracers *sdktrace.TracerProvider
}

func newBackend() *backend {
	b := &backend{reader: metric.NewManualReader(), spans: tracetest.NewSpanRecorder()}
	b.meters = metric.NewMeterProvider(metric.WithReader(b.reader))
	b.tracers = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(b.spans))
	return b
}

// telemetry returns a Telemetry over the backend.
func (b *backend) telemetry(t testing.TB, opts ...rwlockotel.Option) *rwlockotel.Telemetry {
	t.Helper()
	own := []rwlockotel.Option{rwlockotel.WithMeterProvider(b.meters), rwlockotel.WithTracerProvider(b.tracers)}
	return expect.NoError(rwlockotel.New(append(own, opts...)...)).In(t)
}

// observed returns a backend, a Telemetry over it, and a process that both get to know of.
func observed(w *world, opts ...rwlockotel.Option) (*backend, *rwlockotel.Telemetry, *testkit.Process) {
	w.Helper()
	b := newBackend()
	telemetry := b.telemetry(w, opts...)
	p := w.Process(rwlock.WithTrace(telemetry.Trace()))
	require.NoError(w, telemetry.Observe(p.Locker))
	return b, telemetry, p
}

// full returns a backend that has a value of every instrument.
func full(t *testing.T) *backend {
	t.Helper()
	b := newBackend()
	telemetry := b.telemetry(t)
	t.Cleanup(func() { require.NoError(t, telemetry.Close()) })
	locker := testkit.Dial(t, "127.0.0.1:1", rueidis.ClientOption{}) // no server listens there
	require.NoError(t, telemetry.Observe(locker))
	trace := telemetry.Trace()
	event := rwlock.TraceEvent{Name: "n", Mode: rwlock.Write, Hold: "h", Token: 1, Since: time.Second}
	trace.Acquired(t.Context(), event)
	trace.AtRisk(t.Context(), event, time.Second)
	trace.Released(t.Context(), event)
	trace.Failed(t.Context(), event, rwlock.ErrClosed)
	return b
}

// collect returns the metrics by name.
func (b *backend) collect(t testing.TB) map[string]metricdata.Metrics {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, b.reader.Collect(context.Background(), &all))
	metrics := map[string]metricdata.Metrics{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			require.NotContains(t, metrics, m.Name)
			metrics[m.Name] = m
		}
	}
	return metrics
}

// sums returns the values of a counter by its attributes.
func (b *backend) sums(t testing.TB, name string) map[string]int64 {
	t.Helper()
	m, ok := b.collect(t)[name]
	require.True(t, ok, name)
	sums := map[string]int64{}
	for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
		sums[text(p.Attributes)] = p.Value
	}
	return sums
}

// histogram returns the counts and the sums of a histogram by its attributes.
func (b *backend) histogram(t testing.TB, name string) (counts map[string]uint64, sums map[string]float64) {
	t.Helper()
	counts, sums = map[string]uint64{}, map[string]float64{}
	m, ok := b.collect(t)[name]
	if !ok {
		return counts, sums
	}
	require.Equal(t, "s", m.Unit)
	for _, p := range m.Data.(metricdata.Histogram[float64]).DataPoints {
		counts[text(p.Attributes)], sums[text(p.Attributes)] = p.Count, p.Sum
	}
	return counts, sums
}

// text returns attributes in one line, in the order of their keys.
func text(set attribute.Set) string { return set.Encoded(attribute.DefaultEncoder()) }

// of returns the attributes of a span in one line, without those that differ from run to run.
func of(attributes []attribute.KeyValue) string {
	set := attribute.NewSet(slices.DeleteFunc(slices.Clone(attributes), func(a attribute.KeyValue) bool {
		return a.Key == "fencelock.hold" || strings.HasPrefix(string(a.Key), "fencelock.token")
	})...)
	return text(set)
}

// dump returns everything that the backend has got, as text.
func (b *backend) dump(t testing.TB) string {
	t.Helper()
	var all strings.Builder
	for name, m := range b.collect(t) {
		fmt.Fprintf(&all, "%s %+v\n", name, m)
	}
	for _, s := range append(b.spans.Ended(), asReadOnly(b.spans.Started())...) {
		fmt.Fprintf(&all, "%s %v %v %v\n", s.Name(), s.Attributes(), s.Events(), s.Status())
	}
	return all.String()
}

func asReadOnly(started []sdktrace.ReadWriteSpan) (all []sdktrace.ReadOnlySpan) {
	for _, s := range started {
		all = append(all, s)
	}
	return all
}
