package engine

import (
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/seed74116694/fencelock/internal/transport"
)

// outages are the servers that do not answer, and when each is told of again: at once, then at growing intervals. The
// mutex is taken under any other.
type outages struct {
	mu sync.Mutex
	of map[*transport.Node]*outage
}

type outage struct {
	next  time.Duration // when to tell again
	pause time.Duration // until then
}

// The pauses between two reports double from the first to the most.
const (
	outageFirst = time.Second
	outageMost  = time.Minute
)

// due reports whether this failure of the server is to be told, and how long no further one is.
func (o *outages) due(n *transport.Node, now time.Duration) (pause time.Duration, due bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := o.of[n]
	if out == nil {
		out = new(outage)
		if o.of == nil {
			o.of = make(map[*transport.Node]*outage)
		}
		// One that was replaced never answers again, and nobody calls over for it.
		maps.DeleteFunc(o.of, func(other *transport.Node, _ *outage) bool { return other.Ended() })
		o.of[n] = out
	}
	if out.pause > 0 && now < out.next {
		return out.pause, false
	}
	out.pause = min(max(2*out.pause, outageFirst), outageMost)
	out.next = now + out.pause
	return out.pause, true
}

// over notes that the server answers, so that its next outage is told at once.
func (o *outages) over(n *transport.Node) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.of, n)
}

// failed notes that the server did not answer one of its waiters. A refusal is an answer, and is told to the caller
// whose request it refuses.
func (w *waitSets) failed(n *transport.Node, cause error) {
	if n.Failing() {
		w.report(n, cause)
	}
}

// report tells of an outage, if that is due. Each of a thousand waiters may call it for the same outage, at every
// refresh; one of them tells.
func (w *waitSets) report(n *transport.Node, cause error) {
	pause, due := w.outages.due(n, w.e.clock.Now().Mono)
	if !due {
		return
	}
	w.e.observers.warn("a server does not answer those who wait for its locks",
		slog.String("master", n.Addr()), slog.Duration("next_report", pause), slog.Any("error", cause))
	if hook := w.e.observers.hooks.Unreachable; hook != nil {
		w.e.tasks.spawn(func() { w.tellUnreachable(n, hook, cause) }) // the caller may hold a lease's mutex
	}
}

// tellUnreachable tells each of those who wait for a lock of this server, and have no quorum without it. Others go on
// by the masters that answer, and are told nothing.
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
