package engine

import (
	"context"
	"log/slog"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/internal/wire"
)

// Release gives the lock back. It ignores the end of ctx, keeps its values, and waits at most the release timeout for a
// quorum to confirm. A release that is not confirmed by then continues in the background. Release returns nil for a
// lease that was released before, the *Loss of a lease that was lost, and *Error. With Terms.BackgroundRelease it posts
// the release and returns nil: what the masters answer goes to the hooks and to the logger.
func (l *Lease) Release(ctx context.Context) error {
	h, over := l.endByHolder()
	if h == nil {
		return over
	}
	defer h.e.unconfirmed.add(-1)
	err := h.giveBack(ctx, nil, byTerms, nil)
	if failed, ok := err.(*Error); ok {
		h.warnOf(failed)
	}
	return err
}

// ReleaseWithin is Release that does not wait beyond the end of ctx. It is for callers that do not need the result.
func (l *Lease) ReleaseWithin(ctx context.Context) {
	if h, _ := l.endByHolder(); h != nil {
		defer h.e.unconfirmed.add(-1)
		_ = h.giveBack(ctx, ctx.Done(), byTerms, nil)
	}
}

// ReleaseAll is Release for several leases, without the values of a context. The releases to one server are sent
// together, and the release timeout is for all.
func (e *Engine) ReleaseAll(leases []*Lease) []error {
	errs, all := make([]error, len(leases)), make([]*giving, len(leases))
	calls := make([][]transport.Call, len(e.masters))
	for i, l := range leases {
		h, over := l.endByHolder()
		if h == nil {
			errs[i] = over
			continue
		}
		l.mu.Lock()
		g, postings := h.give(byTerms, nil, nil)
		l.mu.Unlock()
		e.unconfirmed.add(-1)
		for _, p := range postings {
			calls[p.m.Index] = append(calls[p.m.Index], p.call)
		}
		if !g.unawaited {
			all[i] = g
		}
	}
	for i, m := range e.masters {
		m.PostAll(calls[i])
	}
	within, cancel := context.WithTimeout(context.Background(), e.cfg.ReleaseTimeout)
	defer cancel()
	for i, g := range all {
		if g == nil {
			continue
		}
		errs[i] = g.await(nil, within.Done())
		if failed, ok := errs[i].(*Error); ok {
			g.h.warnOf(failed)
		}
	}
	return errs
}

// endByHolder ends a lease that is held, counts its release as unconfirmed and returns its hold, for the caller to
// give back. Otherwise it returns what Release returns: nil if the lease was released before, and its *Loss each time.
func (l *Lease) endByHolder() (h *hold, over error) {
	h = l.lock()
	defer l.mu.Unlock()
	if !h.stillHeld() {
		if over = l.done.err(); over == ErrReleased {
			over = nil
		}
		return nil, over
	}
	h.e.unconfirmed.add(+1) // before the registry forgets the lease, so that Close sees the lease or the release
	h.finish(ErrReleased)
	h.e.registry.forget(h.id)
	// The lease ends before the request leaves, so that no goroutine trusts it while another holder enters.
	return h, nil
}

// warnOf counts and logs the error that Release returns. The log and the error agree on whether the release continues.
func (h *hold) warnOf(failed *Error) {
	h.e.counters.unconfirmed.Add(1)
	message := "release not confirmed, trying again in the background"
	if !failed.Unknown {
		message = "release refused, the hold ends with its TTL"
	}
	h.e.observers.warn(message,
		slog.String("lock", h.name), slog.Uint64("token", uint64(h.token())), slog.Any("error", failed))
}

// giveBack releases a hold that has ended, and waits for the verdict: at most for the release timeout, and not beyond
// over, which is nil or the end of ctx. The releases on masters that have not answered by then continue in the
// background, and Close waits for them.
func (h *hold) giveBack(ctx context.Context, over <-chan struct{}, by way, heir *hold) error {
	e := h.e
	if len(e.masters) == 1 && (by == awaited || !h.terms.BackgroundRelease) {
		return h.giveDirectly(ctx, over, heir)
	}
	h.lease.mu.Lock()
	g, calls := h.give(by, heir, make(postings, 0, fewMasters))
	h.lease.mu.Unlock()
	if calls.post(); g.unawaited {
		return nil
	}
	timeout := e.timeouts.start(e.cfg.ReleaseTimeout)
	defer e.timeouts.stop(timeout)
	return g.await(timeout.C, over)
}

// giveDirectly is giveBack on a single master, on the caller's goroutine. A request that was answered has run before
// the release. For a request that was not answered, the release leaves a tombstone if it finds no hold.
func (h *hold) giveDirectly(ctx context.Context, over <-chan struct{}, heir *hold) error {
	e, m := h.e, h.e.masters[0]
	var within context.Context
	if over == nil {
		alone := m.Detached(ctx, e.cfg.ReleaseTimeout)
		defer alone.Stop()
		within = alone
	} else {
		bounded, cancel := context.WithTimeout(ctx, e.cfg.ReleaseTimeout)
		defer cancel()
		within = bounded
	}
	h.lease.mu.Lock()
	r := h.releaseOn(m, heir) // answers may still arrive
	h.lease.mu.Unlock()
	keys := e.keys.All(r.key)
	var array [3]string
	args := r.request(e.clock.Now()).Args(array[:0])
	result, sent := m.Do(within, e.scriptsOf(m).release, e.keys.OfScript(&keys), wire.Vote{}, args)
	if result.NonRedisError() != nil && within.Err() != nil {
		silence := &transport.NoReply{After: e.clock.Now().Mono - sent.Mono}
		if over != nil && ctx.Err() != nil { // not a failure of the master, so no backoff delays other releases
			pending := r
			pending.announce()
			pending.of.add(&pending)
			return h.unreleased(NodeFailures{failureOf(m, r.key, silence)}, 0)
		}
		result = rueidis.NewErrorResult(silence)
	}
	switch had, failure := r.answered(result, sent); {
	case had:
		return nil
	case failure == nil:
		return h.wasGone()
	default:
		return h.unreleased(NodeFailures{*failure}, 0)
	}
}

// ReleaseSoon ends a lease that is held, as Release does, and gives the lock back in the background. It is for callers
// that must not wait: a timer, or a goroutine that only unlocks. The lease has ended when ReleaseSoon returns, so
// nothing in this process relies on it while another holder enters. Releases that are not confirmed are retried until
// the hold has expired.
func (l *Lease) ReleaseSoon() { l.LetGo()() }

// LetGo is ReleaseSoon in two steps: send sends what LetGo has made, and tells who follows the end of the lease. From
// LetGo on, single attempts of this process for the lock are sent to a master after its answer to the release.
func (l *Lease) LetGo() (send func()) {
	l.lock().releaseSoon()
	return l.mu.unlock()
}

// releaseSoon ends a hold that is held, under mu, and gives it back in the background.
func (h *hold) releaseSoon() {
	if h.stillHeld() {
		h.finish(ErrReleased)
		h.giveAtOnce(nil)
	}
}

// giveAtOnce gives the hold back in the background, under mu, and removes it from the registry. The releases are
// counted first, so that Close sees either the hold or its releases. They are sent when mu is unlocked, and not
// together with others, since the next single attempts of this process wait for the answers.
func (h *hold) giveAtOnce(heir *hold) {
	_, calls := h.give(atOnce, heir, nil)
	h.lease.mu.afterUnlock(calls.post)
	h.e.registry.forget(h.id)
}

// giveTogether is giveAtOnce through the queues: the releases of a crowd that gives up are sent together.
func (h *hold) giveTogether(heir *hold) {
	h.withdrawUnsent()
	for i, m := range h.e.masters {
		if h.ballot.Vote(i).MayBeHeld() {
			h.queueRelease(m, heir)
		}
	}
	h.e.registry.forget(h.id)
}

// queueRelease hands the release on one master to its queue, under mu.
func (h *hold) queueRelease(m *transport.Master, heir *hold) {
	r := h.releaseOn(m, heir)
	r.announce()
	h.lease.mu.afterUnlock(func() { r.of.add(&r) })
}
