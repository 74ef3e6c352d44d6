package engine

import (
	"context"

	"github.com/seed74116694/fencelock/internal/transport"
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
	err := giveBack(ctx, nil, h, nil, byTerms)
	if failed, ok := err.(*Error); ok {
		h.e.observers.warnOfRelease(h, failed)
	}
	return err
}

// ReleaseWithin is Release that does not wait beyond the end of ctx. It is for callers that do not need the result.
func (l *Lease) ReleaseWithin(ctx context.Context) {
	if h, _ := l.endByHolder(); h != nil {
		defer h.e.unconfirmed.add(-1)
		_ = giveBack(ctx, ctx.Done(), h, nil, byTerms)
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
		g := newGiving(h, nil, byTerms)
		l.mu.Lock()
		postings := g.calls(nil)
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
			e.observers.warnOfRelease(g.h, failed)
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
		giveAtOnce(h, nil)
	}
}
