package rwlockotel_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/rwlock/rwlockotel"
)

// kind groups names, so that there is a time series for each kind of lock and not for each order.
func kind(name string) string {
	kind, _, _ := strings.Cut(name, ":")
	return kind
}

func ship(context.Context) error { return nil }

// A locker with its metrics and spans. The providers are an application's own; without these options they are the
// global ones.
func Example() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	client, err := rwlock.Dial(server.Addr(), rueidis.ClientOption{})
	if err != nil {
		panic(err)
	}
	defer client.Close()
	reader := metric.NewManualReader()
	provider := metric.NewMeterProvider(metric.WithReader(reader))
	ctx := context.Background()

	telemetry, err := rwlockotel.New(rwlockotel.WithMeterProvider(provider), rwlockotel.WithNames(kind))
	if err != nil {
		panic(err)
	}
	defer telemetry.Close()
	locker, err := rwlock.New(client, rwlock.WithTrace(telemetry.Trace()))
	if err != nil {
		panic(err)
	}
	defer locker.Close()
	if err := telemetry.Observe(locker); err != nil {
		panic(err)
	}
	if err := locker.Do(ctx, "order:42", telemetry.Section(ship)); err != nil {
		panic(err)
	}

	var all metricdata.ResourceMetrics
	if err := reader.Collect(ctx, &all); err != nil {
		panic(err)
	}
	for _, m := range all.ScopeMetrics[0].Metrics {
		if m.Name == "fencelock.acquired" {
			fmt.Println(m.Name, m.Data.(metricdata.Sum[int64]).DataPoints[0].Value)
		}
	}
	// Output: fencelock.acquired 1
}

// Functions of a program's own beside those of the Telemetry.
func ExampleTelemetry_Trace() {
	telemetry, err := rwlockotel.New()
	if err != nil {
		panic(err)
	}
	defer telemetry.Close()

	trace := telemetry.Trace()
	recorded := trace.Lost
	trace.Lost = func(ctx context.Context, e rwlock.TraceEvent, loss *rwlock.LostError) {
		recorded(ctx, e, loss)
		fmt.Println("lost", e.Name, "because of", loss.Reason)
	}

	// rwlock.New(client, rwlock.WithTrace(trace)), and then, after a loss:
	trace.Lost(context.Background(), rwlock.TraceEvent{Name: "order:42"}, &rwlock.LostError{Reason: rwlock.ReasonPaused})
	// Output: lost order:42 because of paused
}
