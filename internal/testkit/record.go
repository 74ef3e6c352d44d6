package testkit

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed74116694/fencelock/rwlock"
)

// Log is what a locker has logged. It can be read while it is written.
type Log struct {
	mu    sync.Mutex
	text  bytes.Buffer
	times []time.Time
}

// Write adds one line.
func (l *Log) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.times = append(l.times, time.Now())
	return l.text.Write(line)
}

// Option has a locker write its log here.
func (l *Log) Option() rwlock.Option {
	return rwlock.WithLogger(slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug})))
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Times returns the moment of each line.
func (l *Log) Times() []time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.times)
}

// About returns the lines with that value of the attribute lock.
func (l *Log) About(name string) (lines []string) {
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, " lock="+name+" ") {
			lines = append(lines, line)
		}
	}
	return lines
}

// Reset forgets all lines.
func (l *Log) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Reset()
	l.times = nil
}

// Trace is what the hooks of a locker were called with, in that order.
type Trace struct {
	mu     sync.Mutex
	events []Event
}

// Event is one call of a hook.
type Event struct {
	What string // such as "acquired"
	rwlock.TraceEvent
	Loss *rwlock.LostError
}

// Option has a locker report its events here.
func (t *Trace) Option() rwlock.Option {
	note := func(what string) func(rwlock.TraceEvent) {
		return func(e rwlock.TraceEvent) { t.note(Event{what, e, nil}) }
	}
	return rwlock.WithTrace(&rwlock.Trace{
		Waiting: note("waiting"), Acquired: note("acquired"), Renewed: note("renewed"), Released: note("released"),
		Lost: func(e rwlock.TraceEvent, loss *rwlock.LostError) { t.note(Event{"lost", e, loss}) },
	})
}

func (t *Trace) note(e Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.events = append(t.events, e)
}

// Events returns what was reported so far of these locks, or of all.
func (t *Trace) Events(names ...string) (events []Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.events {
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
