package engine

import (
	"log/slog"
	"time"

	"github.com/seed74116694/fencelock/internal/transport"
)

// outage is how often waiters are told that a master does not answer: at once, then at growing intervals.
type outage struct {
	next  time.Duration // when to tell again
	pause time.Duration // 0: the master answers
}

// The pauses between two reports double from the first to the most.
const (
	outageFirst = time.Second
	outageMost  = time.Minute
)

// failed notes that the master did not answer one of its waiters. A refusal is an answer.
func (w *waitSets) failed(cause error) {
	if w.m.Failing() {
		w.report(cause)
	}
}

// report tells of an outage, if that is due.
func (w *waitSets) report(cause error) {
	now := w.e.clock.Now().Mono
	w.mu.Lock()
	due := w.outage.pause == 0 || now >= w.outage.next
	if due {
		w.outage.pause = min(max(2*w.outage.pause, outageFirst), outageMost)
		w.outage.next = now + w.outage.pause
	}
	pause := w.outage.pause
	w.mu.Unlock()
	if !due {
		return
	}
	w.e.observers.warn("a master does not answer those who wait for its locks",
		slog.String("master", w.m.Addr()), slog.Duration("next_report", pause), slog.Any("error", cause))
	if hook := w.e.observers.hooks.Unreachable; hook != nil && w.e.cutOff() {
		w.e.tasks.spawn(func() { w.tellUnreachable(hook, cause) }) // the caller may hold a lease's mutex
	}
}

// tellUnreachable tells each of those who wait here.
func (w *waitSets) tellUnreachable(hook func(Event, error), cause error) {
	for _, a := range w.all() {
		a.lease.mu.Lock()
		event := a.lease.event()
		a.lease.mu.Unlock()
		w.e.observers.relay.Offer(func() { hook(event, cause) })
	}
}

// recovered notes that the master answers its waiters again, so that the next outage is told at once.
func (w *waitSets) recovered() {
	w.mu.Lock()
	w.outage = outage{}
	w.mu.Unlock()
}

// cutOff reports whether so many masters fail that no quorum can answer.
func (e *Engine) cutOff() bool {
	return e.count((*transport.Master).Failing) > len(e.masters)-e.quorum()
}

func (e *Engine) count(is func(*transport.Master) bool) (n int) {
	for _, m := range e.masters {
		if is(m) {
			n++
		}
	}
	return n
}
