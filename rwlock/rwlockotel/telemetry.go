package rwlockotel

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/seed74116694/fencelock/rwlock"
)

// scope is the name of the meter and of the tracer.
const scope = "github.com/seed74116694/fencelock/rwlock/rwlockotel"

// Telemetry reports to a meter and a tracer. New makes one, and it is safe for concurrent use. Lockers that share a
// Telemetry are added up; to separate lockers, give each its own, with different [WithAttributes].
type Telemetry struct {
	metrics
	label  func(name string) string
	tracer trace.Tracer

	mu            sync.Mutex               // guards the fields below
	granted       map[string]time.Duration // by hold: from the begin of the acquisition to the grant
	registrations []metric.Registration
	closed        bool
}

// Option configures a Telemetry.
type Option func(*config)

type config struct {
	meters     metric.MeterProvider
	tracers    trace.TracerProvider
	attributes []attribute.KeyValue
	label      func(name string) string
	refused    error
}

func (c *config) refuse(option string, is bool) {
	if is && c.refused == nil {
		c.refused = &rwlock.OptionError{Option: option, Value: "nil", Rule: "must not be nil"}
	}
}

// WithMeterProvider sets where metrics go, by default the global provider. It must not be nil.
func WithMeterProvider(p metric.MeterProvider) Option {
	return func(c *config) { c.refuse("WithMeterProvider", p == nil); c.meters = p }
}

// WithTracerProvider sets where spans go, by default the global provider. It must not be nil.
func WithTracerProvider(p trace.TracerProvider) Option {
	return func(c *config) { c.refuse("WithTracerProvider", p == nil); c.tracers = p }
}

// WithAttributes adds attributes to every metric and every span, such as the Redis that a locker uses.
func WithAttributes(attributes ...attribute.KeyValue) Option {
	return func(c *config) { c.attributes = append(c.attributes, attributes...) }
}

// WithNames adds the attribute fencelock.name to the spans and the metrics of the trace, with what label returns for
// the name of the lock; "" leaves it out. Every value is a time series, so label should have few: "order" for each
// "order:42". It must not be nil. It is called on the goroutine of the trace, and in sections.
func WithNames(label func(name string) string) Option {
	return func(c *config) { c.refuse("WithNames", label == nil); c.label = label }
}

// New returns a Telemetry. Its error is an *rwlock.OptionError, or an error of the meter. Close the Telemetry after the
// lockers, and before the providers are shut down.
func New(opts ...Option) (*Telemetry, error) {
	c := config{meters: otel.GetMeterProvider(), tracers: otel.GetTracerProvider()}
	for _, opt := range opts {
		if opt == nil {
			c.refuse("option", true)
			break
		}
		opt(&c)
	}
	if c.refused != nil {
		return nil, c.refused
	}
	m, err := newMetrics(c.meters.Meter(scope), c.attributes)
	if err != nil {
		return nil, err
	}
	return &Telemetry{
		metrics: m, label: c.label, tracer: c.tracers.Tracer(scope), granted: map[string]time.Duration{},
	}, nil
}

// Trace returns the functions for rwlock.WithTrace. A program with functions of its own sets the fields of the returned
// Trace to functions that call both.
func (t *Telemetry) Trace() *rwlock.Trace {
	return &rwlock.Trace{
		Acquired: t.onAcquired, Failed: t.onFailed, AtRisk: t.onAtRisk,
		Released: t.onEnd, Expired: t.onEnd, Lost: t.onLost,
	}
}

// Observe exports the statistics of a locker until Close. A locker that is observed twice counts twice. The error is an
// *rwlock.OptionError for nil, ErrClosed after Close, or an error of the meter.
func (t *Telemetry) Observe(l *rwlock.Locker) error {
	if l == nil {
		return &rwlock.OptionError{Option: "locker", Value: "nil", Rule: "must not be nil"}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return ErrClosed
	}
	registration, err := t.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		t.report(o, l.Stats())
		return nil
	}, t.observed...)
	if err != nil {
		return err
	}
	t.registrations = append(t.registrations, registration)
	return nil
}

// ErrClosed is returned by Observe after Close.
var ErrClosed = errors.New("rwlockotel: telemetry closed")

// Close ends the export of statistics, and their time series. Events of the trace are recorded also after it. Close
// returns the errors of the meter, joined; called again it does nothing and returns nil.
func (t *Telemetry) Close() error {
	t.mu.Lock()
	registrations := t.registrations
	t.registrations, t.closed = nil, true
	t.mu.Unlock()
	var failed []error
	for _, r := range registrations {
		failed = append(failed, r.Unregister())
	}
	return errors.Join(failed...)
}
