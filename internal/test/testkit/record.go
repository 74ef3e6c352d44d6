package testkit

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed74116694/fencelock/rwlock"
)

// Log is what a locker has logged. It can be read while it is written.
type Log struct {
	mu      sync.Mutex
	text    bytes.Buffer
	records []slog.Record
}

// Option has a locker write its log here.
func (l *Log) Option() rwlock.Option { return rwlock.WithLogger(slog.New(l)) }

// Enabled is part of slog.Handler.
func (l *Log) Enabled(context.Context, slog.Level) bool { return true }

// WithAttrs is part of slog.Handler. A locker adds all attributes to each record.
func (l *Log) WithAttrs([]slog.Attr) slog.Handler { return l }

// WithGroup is part of slog.Handler.
func (l *Log) WithGroup(string) slog.Handler { return l }

// Handle keeps a record.
func (l *Log) Handle(ctx context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records = append(l.records, r)
	return slog.NewTextHandler(&l.text, &slog.HandlerOptions{Level: slog.LevelDebug}).Handle(ctx, r)
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Records returns the records with a message that contains this, or all of them for "".
func (l *Log) Records(about string) (found []slog.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.records {
		if strings.Contains(r.Message, about) {
			found = append(found, r)
		}
	}
	return found
}

// About returns the records with that value of the attribute lock.
func (l *Log) About(name string) (found []slog.Record) {
	for _, r := range l.Records("") {
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == "lock" && a.Value.String() == name {
				found = append(found, r)
			}
			return true
		})
	}
	return found
}

// Reset forgets everything.
func (l *Log) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Reset()
	l.records = nil
}

// Notes are what was noted, in any goroutine.
type Notes[T any] struct {
	mu  sync.Mutex
	all []T
}

// Add notes more.
func (n *Notes[T]) Add(more ...T) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, more...)
}

// All returns what was noted so far.
func (n *Notes[T]) All() []T {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.all)
}

// Trace is what the hooks of a locker were called with, in that order.
type Trace struct{ notes Notes[Event] }

// Event is one call of a hook.
type Event struct {
	What string // such as "acquired"
	rwlock.TraceEvent
	Loss *rwlock.LostError
	Err  error         // of a failed acquisition
	Left time.Duration // of a lease at risk
}

// Option has a locker report its events here.
func (t *Trace) Option() rwlock.Option {
	note := func(what string) func(context.Context, rwlock.TraceEvent) {
		return func(_ context.Context, e rwlock.TraceEvent) { t.notes.Add(Event{What: what, TraceEvent: e}) }
	}
	return rwlock.WithTrace(&rwlock.Trace{
		Waiting: note("waiting"), Acquired: note("acquired"), Renewed: note("renewed"), Released: note("released"),
		Expired: note("expired"), Detached: note("detached"),
		Lost: func(_ context.Context, e rwlock.TraceEvent, loss *rwlock.LostError) {
			t.notes.Add(Event{What: "lost", TraceEvent: e, Loss: loss})
		},
		Failed: func(_ context.Context, e rwlock.TraceEvent, err error) {
			t.notes.Add(Event{What: "failed", TraceEvent: e, Err: err})
		},
		AtRisk: func(_ context.Context, e rwlock.TraceEvent, left time.Duration) {
			t.notes.Add(Event{What: "at risk", TraceEvent: e, Left: left})
		},
	})
}

// Events returns what was reported so far of these locks, or of all.
func (t *Trace) Events(names ...string) (events []Event) {
	for _, e := range t.notes.All() {
		if len(names) == 0 || slices.Contains(names, e.Name) {
			events = append(events, e)
		}
	}
	return events
}

// Last returns the last event of that kind, or nil.
func (t *Trace) Last(what string) *Event {
	for _, e := range slices.Backward(t.Events()) {
		if e.What == what {
			return &e
		}
	}
	return nil
}
