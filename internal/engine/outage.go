package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed74116694/fencelock/internal/schedule"
	"github.com/seed74116694/fencelock/internal/transport"
)

// outages holds the servers that do not answer, or that have refused for a while, and when each is reported next: at
// once, then at growing intervals, and once more when the outage is over. The log has fewer of these reports: see
// logLimit. Its mutex is acquired last, under any other.
type outages struct {
	any atomic.Bool // whether of is not empty: most answers find no outage
	mu  sync.Mutex
	of  map[*transport.Node]*outage
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

// due reports whether to report this failure of the server, which has lasted for some time already, and whether the log
// gets a line of it.
func (o *outages) due(n *transport.Node, now, lasted time.Duration, limit *logLimit) (due, line bool) {
	addr := n.Addr()
	o.mu.Lock()
	defer o.mu.Unlock()
	out := o.of[n]
	if out == nil {
		out = &outage{since: now - lasted}
		o.any.Store(true)
		if o.of == nil {
			o.of = make(map[*transport.Node]*outage)
		}
		// A node that was replaced never answers again, so over is not called for it.
		maps.DeleteFunc(o.of, func(other *transport.Node, _ *outage) bool { return other.Ended() })
		o.of[n] = out
	}
	if out.pause > 0 && now < out.next {
		return false, false
	}
	out.pause = min(max(2*out.pause, outageFirst), outageMost)
	out.next = now + out.pause
	line = limit.due(now, addr)
	out.told = out.told || line
	return true, line
}

func (o *outages) has(n *transport.Node) bool {
	if !o.any.Load() {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.of[n] != nil
}

// over records that the server answers, so that its next outage is reported at once. It reports whether that ends an
// outage that the log has a line of, and how long the outage was.
func (o *outages) over(n *transport.Node, now time.Duration) (after time.Duration, ended bool) {
	if !o.any.Load() {
		return 0, false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	out := o.of[n]
	if out == nil {
		return 0, false
	}
	delete(o.of, n)
	o.any.Store(len(o.of) > 0)
	return now - out.since, out.told
}

// logLimit bounds the lines about servers that fail: one a server and minute, whatever it fails to do. One outage makes
// renewals, releases and waiters fail, a thousand of them as well as one, and the first line says what is wrong with
// the server. Its zero value is ready. Its mutex is acquired last, after the one of outages.
type logLimit struct {
	mu   sync.Mutex
	last map[string]time.Duration // by server: when it had a line, within the last minute
}

const logPause = time.Minute

// due reports whether to log a failure of these servers, because one of them has had no line for a minute.
func (l *logLimit) due(now time.Duration, servers ...string) (due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.last, func(_ string, last time.Duration) bool { return now-last >= logPause })
	for _, server := range servers {
		if _, told := l.last[server]; told {
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

// refusalLasts is how long a server refuses a lock before the refusal counts as an outage. During a failover or the
// migration of a slot a server refuses for a moment.
const refusalLasts = time.Second

// failed records that the server did not answer a request of this kind for this lock, or refused one again.
func (w *waitSets) failed(name string, n *transport.Node, k schedule.Kind, cause error) {
	if refused := w.refused(name, w.e.clock.Now().Mono, k); n.Failing() || refused >= refusalLasts {
		w.report(n, cause, refused)
	}
}

// refused returns for how long the server has refused requests of this kind for the lock, 0 where it does not.
func (w *waitSets) refused(name string, now time.Duration, k schedule.Kind) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.byName[name]; s != nil {
		return s.schedule.RefusedFor(now, k)
	}
	return 0
}

// served records, under mu, that the server has served one of its locks. Its outage continues while it refuses another
// lock.
func (w *waitSets) served(n *transport.Node) {
	if !w.outages.has(n) { // the answers of the other servers of a Cluster do not search the sets
		return
	}
	for _, s := range w.byName {
		if s.schedule.Refused() && s.node() == n {
			return
		}
	}
	if after, ended := w.outages.over(n, w.e.clock.Now().Mono); ended {
		w.e.observers.info("a server answers its waiters again",
			slog.String("master", n.Addr()), slog.Duration("after", after))
	}
}

// report logs an outage if a report is due. A thousand waiters may call it for the same outage, at every refresh, and
// only one of them reports.
func (w *waitSets) report(n *transport.Node, cause error, lasted time.Duration) {
	due, line := w.outages.due(n, w.e.clock.Now().Mono, lasted, &w.e.observers.limit)
	if !due {
		return
	}
	message := "a server does not answer its waiters"
	if transport.Refused(cause) {
		message = "a server refuses its waiters"
	}
	if unsent, ok := errors.AsType[*transport.NotSent](cause); ok {
		cause = unsent.Cause
	}
	if line {
		attributes := []slog.Attr{slog.String("master", n.Addr()), slog.Any("error", cause)}
		if cure := transport.Cure(cause); cure != "" {
			attributes = append(attributes, slog.String("advice", cure))
		}
		w.e.observers.warn(message, attributes...)
	}
	if hook := w.e.observers.hooks.Of[OnUnreachable]; hook != nil {
		w.e.tasks.spawn(func() { w.reportUnreachable(n, hook, cause) }) // the caller may hold a lease's mutex
	}
}

// reportUnreachable calls the hook for each waiter for a lock of this server that has no quorum without the server. The
// remaining waiters continue with the masters that answer, and the hook is not called for them.
func (w *waitSets) reportUnreachable(n *transport.Node, hook Hook, cause error) {
	for _, a := range w.all() {
		if w.m.At(a.hold.key) != n {
			continue
		}
		a.hold.lease.mu.Lock()
		cutOff, ctx, event := a.cutOff(), a.hold.extra.ctx, a.hold.event()
		a.hold.lease.mu.Unlock()
		if cutOff {
			w.e.observers.relay.Offer(func() { hook(ctx, event, cause, 0) })
		}
	}
}

// evictions holds what the servers have said about evicting keys. A server is asked when it answers for the first time,
// because nothing else reports an eviction, and again after the loss of a hold that it does not have any more, because
// its configuration may have changed.
type evictions struct {
	e  *Engine
	mu sync.Mutex
	of map[string]eviction // by the address: a server whose node is made again is reported once
}

type eviction struct {
	policy   string        // by which the server evicts keys; "" if it evicts none, or does not tell
	reported bool          // in the log
	next     time.Duration // when a loss may be the cause to ask again
}

// evictionsEvery is the shortest time between two losses after which a server is asked.
const evictionsEvery = time.Minute

// ask asks the server for its policy and logs one that may cost locks, once. It waits for no answer.
func (v *evictions) ask(n *transport.Node) {
	e := v.e
	e.tasks.spawn(func() {
		ctx, cancel := context.WithTimeout(e.life, batchTimeout)
		defer cancel()
		addr := n.Addr()
		policy, limited, known := n.EvictionPolicy(ctx)
		if !known {
			return
		}
		if v.learn(addr, policy, limited) {
			message := "server may evict locks; set its maxmemory-policy to noeviction"
			if !limited {
				message = "server would evict locks if its memory were limited; set its maxmemory-policy to noeviction"
			}
			e.observers.warn(message, slog.String("master", addr), slog.String("policy", policy))
		}
	})
}

// learn records the policy of a server. It reports whether the log has to name it.
func (v *evictions) learn(addr, policy string, limited bool) (report bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	one := v.of[addr]
	report = policy != noEviction && !one.reported
	one.reported = one.reported || report
	one.policy = ""
	if limited && policy != noEviction {
		one.policy = policy
	}
	v.of[addr] = one
	return report
}

// noEviction is the policy under which a server refuses writes and evicts no key.
const noEviction = "noeviction"

// suspect asks the servers of this lock for their policies, because they do not have a hold any more.
func (v *evictions) suspect(lock string) {
	now := v.e.clock.Now().Mono
	for _, m := range v.e.masters {
		n := m.At(lock)
		v.mu.Lock()
		one := v.of[n.Addr()]
		due := now >= one.next
		if due {
			one.next = now + evictionsEvery
			v.of[n.Addr()] = one
		}
		v.mu.Unlock()
		if due {
			v.ask(n)
		}
	}
}

// Cause returns why the masters did not renew the lease. If they do not have the hold any more, it names the masters
// that are known to evict keys by now, and is nil if there are none.
func (l *Loss) Cause() error {
	if l.Reason != Taken || l.by == nil {
		return l.Err
	}
	var evicting NodeFailures
	v := &l.by.evictions
	v.mu.Lock()
	defer v.mu.Unlock()
	for i, m := range l.by.masters {
		n := m.At(l.lock)
		if policy := v.of[n.Addr()].policy; policy != "" {
			evicting = append(evicting, NodeFailure{Index: i, Addr: n.Addr(), Err: evicts(policy)})
		}
	}
	if evicting == nil {
		return nil
	}
	return evicting
}

var errEvicts = errors.New("evicts keys")

func evicts(policy string) error {
	return fmt.Errorf("%w: its maxmemory-policy is %s, locks need %s", errEvicts, policy, noEviction)
}
