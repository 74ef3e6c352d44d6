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

// failed notes that the server did not answer one of its waiters. A refusal is an answer.
func (w *waitSets) failed(n *transport.Node, cause error) {
	if n.Failing() {
		w.report(n, cause)
	}
}

// report tells of an outage, if that is due.
func (w *waitSets) report(n *transport.Node, cause error) {
	now := w.e.clock.Now().Mono
	w.mu.Lock()
	o := w.outages[n]
	if o == nil {
		o = new(outage)
		w.outages[n] = o
	}
	due := o.pause == 0 || now >= o.next
	if due {
		o.pause = min(max(2*o.pause, outageFirst), outageMost)
		o.next = now + o.pause
	}
	pause := o.pause
	w.mu.Unlock()
	// Nobody is told under the mutex: a logger may call the locker.
	if !due {
		return
	}
	w.e.observers.warn("a server does not answer those who wait for its locks",
		slog.String("master", n.Addr()), slog.Duration("next_report", pause), slog.Any("error", cause))
	if hook := w.e.observers.hooks.Unreachable; hook != nil {
		w.e.tasks.spawn(func() { w.tellUnreachable(n, hook, cause) }) // the caller may hold a lease's mutex
	}
}

// tellUnreachable tells each of those who wait for a lock of this server, and have no quorum without it.
func (w *waitSets) tellUnreachable(n *transport.Node, hook func(Event, error), cause error) {
	for _, a := range w.all() {
		lock := a.lease.key.lock()
		if w.m.At(lock) != n || !w.e.cutOff(lock) {
			continue
		}
		a.lease.mu.Lock()
		event := a.lease.event()
		a.lease.mu.Unlock()
		w.e.observers.relay.Offer(func() { hook(event, cause) })
	}
}

// recovered notes that the server answers its waiters again, so that the next outage is told at once.
func (w *waitSets) recovered(n *transport.Node) {
	w.mu.Lock()
	delete(w.outages, n)
	w.mu.Unlock()
}

// count counts the acquisitions that wait here for such locks.
func (w *waitSets) count(is func(lock string) bool) (n int) {
	for _, a := range w.all() {
		if is(a.lease.key.lock()) {
			n++
		}
	}
	return n
}

// cutOff reports whether the servers of so many masters fail that no quorum can answer for this lock.
func (e *Engine) cutOff(lock string) bool {
	fails := func(m *transport.Master) bool { return m.At(lock).Failing() }
	return e.count(fails) > len(e.masters)-e.quorum()
}

// count returns how many masters are such.
func (e *Engine) count(is func(*transport.Master) bool) (n int) {
	for _, m := range e.masters {
		if is(m) {
			n++
		}
	}
	return n
}
