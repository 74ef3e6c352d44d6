package rwlockotel

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/rwlock"
)

const (
	modeKey   = attribute.Key("fencelock.mode")
	nameKey   = attribute.Key("fencelock.name")
	namesKey  = attribute.Key("fencelock.names")
	holdKey   = attribute.Key("fencelock.hold")
	tokenKey  = attribute.Key("fencelock.token")
	tokensKey = attribute.Key("fencelock.tokens")
)

// onAcquired records the wait, and keeps the time of the grant for onEnd. Each of its calls is followed by one call of
// onEnd.
func (t *Telemetry) onAcquired(ctx context.Context, e rwlock.TraceEvent) {
	t.mu.Lock()
	t.granted[e.Hold] = e.Since
	t.mu.Unlock()
	t.waited(ctx, e, attribute.KeyValue{})
}

func (t *Telemetry) onFailed(ctx context.Context, e rwlock.TraceEvent, err error) {
	t.waited(ctx, e, causeKey.String(cause(err)))
}

// cause returns the field of rwlock.FailedStats that counts a failure.
func cause(err error) string {
	switch e := err.(type) {
	case *rwlock.AcquireError:
		return contended
	case *rwlock.QuorumError:
		if e.Is(rwlock.ErrNoQuorum) {
			return noQuorum
		}
		return refused
	}
	if errors.Is(err, rwlock.ErrClosed) {
		return closed
	}
	return refused
}

// waited records the end of an acquisition, and draws the span of a wait. A span is drawn when it is over: events may
// be dropped, and a span that was begun with one of them might never end.
func (t *Telemetry) waited(ctx context.Context, e rwlock.TraceEvent, failure attribute.KeyValue) {
	t.waitTime.Record(ctx, e.Since.Seconds(), metric.WithAttributeSet(t.set(t.mode(e), t.name(e.Name), failure)))
	if !e.Contended {
		return
	}
	now := time.Now()
	_, span := t.tracer.Start(ctx, "fencelock.wait", trace.WithTimestamp(now.Add(-e.Since)),
		trace.WithAttributes(t.spanAttributes(t.mode(e), t.name(e.Name), holdKey.String(e.Hold))...))
	if e.Token > 0 {
		span.SetAttributes(tokenKey.Int64(int64(e.Token)))
	}
	if failure.Valid() {
		span.SetAttributes(failure)
		span.SetStatus(codes.Error, "")
	}
	span.End(trace.WithTimestamp(now))
}

func (t *Telemetry) onAtRisk(ctx context.Context, e rwlock.TraceEvent, left time.Duration) {
	t.atRisk.Add(ctx, 1, metric.WithAttributeSet(t.set(t.mode(e), t.name(e.Name))))
	t.annotate(ctx, "fencelock.at_risk", e, attribute.Float64("fencelock.left", left.Seconds()))
}

func (t *Telemetry) onLost(ctx context.Context, e rwlock.TraceEvent, loss *rwlock.LostError) {
	t.annotate(ctx, "fencelock.lost", e, reasonKey.String(string(loss.Reason)))
	t.onEnd(ctx, e)
}

// annotate adds an event to the caller's span, if that has not ended.
func (t *Telemetry) annotate(ctx context.Context, name string, e rwlock.TraceEvent, about attribute.KeyValue) {
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.AddEvent(name, trace.WithAttributes(t.spanAttributes(
			t.mode(e), t.name(e.Name), holdKey.String(e.Hold), tokenKey.Int64(int64(e.Token)), about)...))
	}
}

func (t *Telemetry) onEnd(ctx context.Context, e rwlock.TraceEvent) {
	t.mu.Lock()
	since, known := t.granted[e.Hold]
	delete(t.granted, e.Hold)
	t.mu.Unlock()
	if known {
		t.holdTime.Record(ctx, (e.Since - since).Seconds(), metric.WithAttributeSet(t.set(t.mode(e), t.name(e.Name))))
	}
}

// Section returns fn inside a span, for the Do of a locker in any of its forms:
//
//	err := locker.Do(ctx, "order:42", telemetry.Section(ship))
//
// The span has the tokens of the context's fences, and fn finds it in its context. Its status is an error if fn fails
// or panics, and error.type is the type of the error; if a lock was lost by then, error.type is "lost", also if fn
// returned nil. The text of an error may name a lock, so it is left to fn to record it. For a nil fn Section returns
// nil, which Do refuses.
func (t *Telemetry) Section(fn func(context.Context) error) func(context.Context) error {
	if fn == nil {
		return nil
	}
	return func(ctx context.Context) error {
		ctx, span := t.tracer.Start(ctx, "fencelock.section", trace.WithAttributes(t.section(ctx)...))
		returned := false
		var err error
		defer func() {
			switch {
			case errors.Is(context.Cause(ctx), rwlock.ErrLost) || errors.Is(err, rwlock.ErrLost):
				span.SetAttributes(causeKey.String("lost"))
			case !returned:
				span.SetAttributes(causeKey.String("panic"))
			case err != nil:
				span.SetAttributes(causeKey.String(fmt.Sprintf("%T", err)))
			default:
				span.End()
				return
			}
			span.SetStatus(codes.Error, "")
			span.End()
		}()
		err = fn(ctx)
		returned = true
		return err
	}
}

// section returns the attributes of a section's span.
func (t *Telemetry) section(ctx context.Context) []attribute.KeyValue {
	var tokens []int64
	var names []string
	for f := range fencing.All(ctx) {
		tokens = append(tokens, int64(f.Token))
		if name := t.name(f.Resource); name.Valid() {
			names = append(names, name.Value.AsString())
		}
	}
	attributes := t.spanAttributes()
	if len(tokens) > 0 {
		attributes = append(attributes, tokensKey.Int64Slice(tokens))
	}
	if len(names) > 0 {
		attributes = append(attributes, namesKey.StringSlice(names))
	}
	return attributes
}

func (t *Telemetry) mode(e rwlock.TraceEvent) attribute.KeyValue {
	return modeKey.String(e.Mode.String())
}

// name is not valid unless WithNames asks for it.
func (t *Telemetry) name(of string) attribute.KeyValue {
	if t.label == nil {
		return attribute.KeyValue{}
	}
	if label := t.label(of); label != "" {
		return nameKey.String(label)
	}
	return attribute.KeyValue{}
}

// spanAttributes returns the attributes of the Telemetry and the valid ones of these.
func (t *Telemetry) spanAttributes(more ...attribute.KeyValue) []attribute.KeyValue {
	set := t.set(more...)
	return set.ToSlice()
}
