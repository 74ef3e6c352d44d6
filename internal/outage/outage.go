// Package outage knows which servers fail, and when each of them is reported next. It asks no server: its callers say
// what they have met.
package outage

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed74116694/fencelock/internal/transport"
)

// Set has the servers that do not answer, or that have refused for a while, and when each is reported next: at
// once, then at growing intervals, and once more when the outage is over. The log has fewer of these reports: see Log.
// Its zero value is ready. Its mutex is acquired last, under any other.
type Set struct {
	Some atomic.Bool // whether any server fails: most answers find no outage
	mu   sync.Mutex
	of   map[*transport.Node]*outage
}

type outage struct {
	since time.Duration
	next  time.Duration // time of the next report
	pause time.Duration // between the last report and the next
	told  bool          // the log has a line of it
}

// The pause between two reports doubles from outageFirst to outageMost.
const (
	outageFirst = time.Second
	outageMost  = time.Minute
)

// Due reports whether to report this failure of the server, which has lasted for some time already, and whether the log
// gets a line of it.
func (o *Set) Due(n *transport.Node, now, lasted time.Duration, log *Log) (due, line bool) {
	addr := n.Addr()
	o.mu.Lock()
	defer o.mu.Unlock()
	out := o.of[n]
	if out == nil {
		out = &outage{since: now - lasted}
		o.Some.Store(true)
		if o.of == nil {
			o.of = make(map[*transport.Node]*outage)
		}
		// A node that was replaced never answers again, so Over is not called for it.
		maps.DeleteFunc(o.of, func(other *transport.Node, _ *outage) bool { return other.Ended() })
		o.of[n] = out
	}
	if out.pause > 0 && now < out.next {
		return false, false
	}
	out.pause = min(max(2*out.pause, outageFirst), outageMost)
	out.next = now + out.pause
	line = log.Due(now, addr)
	out.told = out.told || line
	return true, line
}

// Has reports whether this server fails.
func (o *Set) Has(n *transport.Node) bool {
	if !o.Some.Load() {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.of[n] != nil
}

// Over records that the server answers, so that its next outage is reported at once. It reports whether that ends an
// outage that the log has a line of, and how long the outage was.
func (o *Set) Over(n *transport.Node, now time.Duration) (after time.Duration, ended bool) {
	if !o.Some.Load() {
		return 0, false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	out := o.of[n]
	if out == nil {
		return 0, false
	}
	delete(o.of, n)
	o.Some.Store(len(o.of) > 0)
	return now - out.since, out.told
}

// Log bounds the lines about servers that fail: one a server and minute. One outage makes
// renewals, releases and waiters fail, a thousand of them as well as one, and the first line says what is wrong with
// the server. Its zero value is ready. Its mutex is acquired last, after that of a Set.
type Log struct {
	mu   sync.Mutex
	last map[string]time.Duration // by server: when it had a line, within the last minute
}

const logPause = time.Minute

// Due reports whether to log a failure of these servers, because for a minute some server of them had no line.
func (l *Log) Due(now time.Duration, servers ...string) (due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.last, func(_ string, last time.Duration) bool { return now-last >= logPause })
	for _, server := range servers {
		if _, has := l.last[server]; has {
			continue
		}
		if l.last == nil {
			l.last = make(map[string]time.Duration)
		}
		l.last[server] = now
		due = true
	}
	return due
}
