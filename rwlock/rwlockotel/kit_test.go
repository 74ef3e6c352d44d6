package rwlockotel_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/rwlock/rwlockotel"
)

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
	telemetry, err := rwlockotel.New(append(own, opts...)...)
	require.NoError(t, err)
	return telemetry
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
