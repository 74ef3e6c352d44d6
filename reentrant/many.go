package reentrant

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/seed74116694/fencelock/internal/joined"
	"github.com/seed74116694/fencelock/internal/outcome"
	"github.com/seed74116694/fencelock/internal/settings"
	"github.com/seed74116694/fencelock/rwlock"
)

// LockAll takes several locks for writing, for the owner in ctx: all of them, or none. It nests in those that the owner
// holds, and takes the others together as rwlock.Locker.LockAll does, with its options and errors. Under AsOwner it
// first tries to join each of them, one after the other.
//
// If the owner holds a later lock in this process, in which this call nests or not, LockAll does not wait for an
// earlier one: it returns rwlock.ErrLockOrder, because the holder of that one may wait for the later one. Holds
// of the owner in other processes count if this call has joined them. LockAll does not upgrade: a lock that the owner
// holds for reading is rwlock.ErrUpgrade at once, because an upgrade could not be undone if another lock fails. Take
// that one by Lock before.
func (l *Locker) LockAll(ctx context.Context, names []string, opts ...rwlock.LockOption) (*MultiHold, error) {
	return l.acquireAll(ctx, names, request{mode: rwlock.Write, opts: opts})
}

// RLockAll is LockAll for reading. Where the owner holds a lock for writing it shares that lease.
func (l *Locker) RLockAll(ctx context.Context, names []string, opts ...rwlock.LockOption) (*MultiHold, error) {
	return l.acquireAll(ctx, names, request{mode: rwlock.Read, opts: opts})
}

// TryLockAll is LockAll with a single attempt: it returns *rwlock.AcquireError at once if another client holds one of
// the locks or waits for it.
func (l *Locker) TryLockAll(ctx context.Context, names []string, opts ...rwlock.LockOption) (*MultiHold, error) {
	return l.acquireAll(ctx, names, request{mode: rwlock.Write, try: true, opts: opts})
}

// TryRLockAll is TryLockAll for reading.
func (l *Locker) TryRLockAll(ctx context.Context, names []string, opts ...rwlock.LockOption) (*MultiHold, error) {
	return l.acquireAll(ctx, names, request{mode: rwlock.Read, try: true, opts: opts})
}

// DoAll runs fn while the owner in ctx holds all the locks for writing, as Do does for one; a ctx without an owner gets
// a new one. When DoAll returns, its holds have ended and so has every hold nested in them.
func (l *Locker) DoAll(
	ctx context.Context, names []string, fn func(context.Context) error, opts ...rwlock.LockOption,
) error {
	if fn == nil {
		return errNilFn
	}
	ctx = WithOwner(ctx)
	all, err := l.LockAll(ctx, names, opts...)
	return runAll(ctx, all, err, fn)
}

// RDoAll is DoAll for reading.
func (l *Locker) RDoAll(
	ctx context.Context, names []string, fn func(context.Context) error, opts ...rwlock.LockOption,
) error {
	if fn == nil {
		return errNilFn
	}
	ctx = WithOwner(ctx)
	all, err := l.RLockAll(ctx, names, opts...)
	return runAll(ctx, all, err, fn)
}

func runAll(ctx context.Context, all *MultiHold, err error, fn func(context.Context) error) (failed error) {
	if err != nil {
		return err
	}
	defer func() {
		errs, order := all.leave(ctx, true)
		losses := slices.DeleteFunc(errs, func(err error) bool { return !isLoss(err) })
		failed = joined.Errors(outcome.Of(failed, losses...), order)
	}()
	return fn(all.Context(ctx))
}

// acquireAll makes every MultiHold.
func (l *Locker) acquireAll(ctx context.Context, names []string, r request) (*MultiHold, error) {
	sorted, invalid := settings.InOrder(names)
	if invalid != nil {
		return nil, &rwlock.OptionError{Option: invalid.Option, Value: invalid.Value, Rule: invalid.Rule}
	}
	id, err := l.identity(ctx, names[0])
	if err != nil {
		return nil, err
	}
	r.many = true
	m := &MultiHold{locker: l, holds: make([]*Hold, len(names))}
	entered := make(map[int]*section) // that this call has to open, by their positions
	complete := false
	defer func() { // also if a method of ctx panics
		for _, s := range entered {
			s.begin(nil)
		}
		if !complete {
			m.giveUp()
		}
	}()
	for _, at := range sorted {
		r.name = names[at]
		if err := m.enter(ctx, id, r, at, entered); err != nil {
			return nil, err
		}
	}
	if err := m.openAll(ctx, id, r, names, entered); err != nil {
		return nil, err
	}
	complete = true
	return m, nil
}

// enter nests in a lock that the owner holds, or enters the section that openAll opens. In byte order: so two calls of
// one owner do not wait for each other.
func (m *MultiHold) enter(ctx context.Context, id *identity, r request, at int, entered map[int]*section) error {
	h, s, err := m.locker.nestOrEnter(ctx, id, r)
	if s == nil {
		m.holds[at] = h
		return err
	}
	entered[at] = s
	if !id.joins {
		return nil
	}
	if s.lease, err = m.locker.join(ctx, id, r); s.lease != nil {
		m.joined = append(m.joined, m.open(at, entered))
	}
	return err
}

// open opens the section, which has its lease.
func (m *MultiHold) open(at int, entered map[int]*section) *Hold {
	s := entered[at]
	delete(entered, at)
	m.holds[at] = &Hold{section: s, depth: 1}
	s.begin(m.holds[at])
	return m.holds[at]
}

// openAll takes the locks that the owner does not hold.
func (m *MultiHold) openAll(
	ctx context.Context, id *identity, r request, names []string, entered map[int]*section,
) (err error) {
	if len(entered) == 0 {
		return nil
	}
	missing := make([]string, 0, len(entered))
	for at, name := range names {
		if entered[at] != nil {
			missing = append(missing, name)
		}
	}
	m.taken, err = m.locker.callAll(ctx, missing, r, settings.LockOption(func(s *settings.Lock) {
		s.Owner, s.Outer = id.string, &outerHolds{m.locker, id.owner}
	}))
	if err != nil {
		return err
	}
	leases := m.taken.Leases()
	for at := range names {
		if s := entered[at]; s != nil {
			s.lease, leases = leases[0], leases[1:]
			m.open(at, entered)
		}
	}
	return nil
}

// callAll makes the remote acquisition, as call does for one lock.
func (l *Locker) callAll(
	ctx context.Context, names []string, r request, extra rwlock.LockOption,
) (*rwlock.MultiLease, error) {
	opts := append(r.opts[:len(r.opts):len(r.opts)], extra)
	switch {
	case r.mode == rwlock.Write && r.try:
		return l.remote.TryLockAll(ctx, names, opts...)
	case r.mode == rwlock.Write:
		return l.remote.LockAll(ctx, names, opts...)
	case r.try:
		return l.remote.TryRLockAll(ctx, names, opts...)
	default:
		return l.remote.RLockAll(ctx, names, opts...)
	}
}

// outerHolds are the holds of an owner in this process.
type outerHolds struct {
	locker *Locker
	owner  Owner
}

// MayWait returns rwlock.ErrLockOrder if the owner holds a later lock.
func (o *outerHolds) MayWait(name string) error {
	for _, s := range o.laterThan(name) {
		if s.lease.Err() == nil { // not under the mutex: the check may run the locker's hooks
			return fmt.Errorf("%w: lock %q is not free, and the owner holds lock %q", rwlock.ErrLockOrder, name, s.key.name)
		}
	}
	return nil
}

// laterThan returns the open sections of the owner under later locks.
func (o *outerHolds) laterThan(name string) (later []*section) {
	o.locker.mu.Lock()
	defer o.locker.mu.Unlock()
	for key, s := range o.locker.sections {
		if key.owner == o.owner && key.name > name && s.innermost != nil {
			later = append(later, s)
		}
	}
	return later
}

// MultiHold is the holds of one owner of several locks that were taken together. Its methods are safe for concurrent
// use. Only the methods of a Locker make one. The zero value and nil hold nothing: their methods return an
// *rwlock.OptionError, except Release of nil, which returns nil.
type MultiHold struct {
	locker *Locker
	holds  []*Hold            // in the caller's order; some nil until the call has succeeded
	joined []*Hold            // the outermost holds that joined a hold of another process
	taken  *rwlock.MultiLease // of the other outermost holds; nil if there are none
}

var errZeroMultiHold = &rwlock.OptionError{
	Option: "reentrant.MultiHold", Value: "zero value", Rule: "must be made by a Locker",
}

// isZero reports whether it was not made by a Locker: it is the zero value or nil.
func (m *MultiHold) isZero() bool { return m == nil || m.locker == nil }

// Holds returns the holds in the order in which the caller has named the locks.
func (m *MultiHold) Holds() []*Hold {
	if m.isZero() {
		return nil
	}
	return slices.Clone(m.holds)
}

// Context returns parent with the fences of all holds and with the owner of parent. It is cancelled when the first of
// the holds or of their leases ends, with the cause of Hold.Context.
func (m *MultiHold) Context(parent context.Context) context.Context {
	if m.isZero() {
		ended, cancel := context.WithCancelCause(parent)
		cancel(errZeroMultiHold)
		return ended
	}
	for _, h := range m.holds {
		parent = h.Context(parent)
	}
	return parent
}

// Err returns nil while the leases of all holds can be trusted, else the *rwlock.LostError of a lost lease if there is
// one, and an error that matches rwlock.ErrReleased if the lock of one of them was given back.
func (m *MultiHold) Err() error {
	if m.isZero() {
		return errZeroMultiHold
	}
	var released error
	for _, h := range m.holds {
		err := h.section.lease.Err()
		if isLoss(err) {
			return err
		}
		released = cmp.Or(released, err)
	}
	return released
}

// Release ends all holds. Locks that the call has taken are given back together, as rwlock.MultiLease.Release does.
// ErrOrder changes nothing: another hold nests in one of them and has to be released before. A second Release, and
// Release of a nil MultiHold, returns nil.
func (m *MultiHold) Release(ctx context.Context) error {
	switch {
	case m == nil:
		return nil
	case m.isZero():
		return errZeroMultiHold
	}
	errs, err := m.leave(ctx, false)
	return joined.Errors(append(errs, err)...)
}

// giveUp ends the holds of a call that fails.
func (m *MultiHold) giveUp() {
	m.holds = slices.DeleteFunc(m.holds, func(h *Hold) bool { return h == nil })
	_, _ = m.leave(context.Background(), true)
}

// leave removes the holds, and gives back the locks of which these were the outermost. Holds nested in them are removed
// too if forced; else they are ErrOrder, and nothing is removed.
func (m *MultiHold) leave(ctx context.Context, forced bool) (errs []error, order error) {
	left, order := m.takeOut(forced)
	taken := false
	for _, x := range left {
		x.hold.endContexts(x.contexts)
		switch {
		case x.hold.outer != nil:
			if err := x.hold.section.lease.Err(); isLoss(err) {
				errs = append(errs, err)
			}
		case slices.Contains(m.joined, x.hold):
			errs = append(errs, x.hold.section.lease.Release(ctx))
		default:
			taken = true
		}
	}
	if taken {
		errs = append(errs, joined.Parts(m.taken.Release(ctx))...)
	}
	return errs, order
}

// removed is a hold that was taken out, with the contexts that end with it.
type removed struct {
	hold     *Hold
	contexts []context.CancelCauseFunc
}

// takeOut removes the holds that are not released. order is ErrOrder if others nest in them.
func (m *MultiHold) takeOut(forced bool) (left []removed, order error) {
	m.locker.mu.Lock()
	defer m.locker.mu.Unlock()
	var nested []error
	for _, h := range m.holds {
		if !h.released && h.section.innermost != h {
			nested = append(nested, h.section.outOfOrder(h))
		}
	}
	order = joined.Errors(nested...)
	if order != nil && !forced {
		return nil, order
	}
	for _, h := range m.holds {
		if !h.released {
			left = append(left, removed{h, h.section.takeOut(h)})
		}
	}
	return left, order
}

func isLoss(err error) bool { return errors.Is(err, rwlock.ErrLost) }
