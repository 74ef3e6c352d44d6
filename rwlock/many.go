package rwlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed74116694/fencelock/internal/engine"
	"github.com/seed74116694/fencelock/internal/errs"
	"github.com/seed74116694/fencelock/internal/settings"
)

// Want is a lock that a call of several locks takes, and its mode. Writes and Reads make Wants of one mode, and append
// joins them.
type Want struct {
	Name string
	Mode Mode // Read or Write
}

// Writes returns Wants for writing.
func Writes(names ...string) []Want { return inMode(Write, names) }

// Reads returns Wants for reading.
func Reads(names ...string) []Want { return inMode(Read, names) }

func inMode(mode Mode, names []string) []Want {
	wants := make([]Want, len(names))
	for i, name := range names {
		wants[i] = Want{name, mode}
	}
	return wants
}

// LockAll takes several locks, each in the mode of its Want: all of them, or none. All are asked for at once, so on one
// Redis free locks cost one round trip. Callers that take the same locks never wait for each other in a circle, in
// whatever order and mode: docs/guarantees.md has the rules under "Several locks".
//
// If ctx comes from a section of this locker that holds a later lock, in byte order, LockAll returns ErrLockOrder where
// it would have to wait. If it comes from a section under one of the names, the error is ErrNested, as of Lock.
//
// The options apply to each lock, and WithMaxWait to the whole call. The errors are those of Lock, and name the lock
// that LockAll could not get. A lock that is lost meanwhile ends the call with its *LostError. No want, more than
// 1,000, a mode that is neither, and a name that occurs twice are an *OptionError before anything is sent. With every
// error the call holds nothing: what it has taken is released in the background.
func (l *Locker) LockAll(ctx context.Context, wants []Want, opts ...LockOption) (*MultiLease, error) {
	return l.acquireAll(ctx, wants, engine.Wait, opts)
}

// TryLockAll is LockAll with a single attempt for each lock, as TryLock and TryRLock are for one: it returns an
// *AcquireError at once if another client holds one of the locks or waits for it, unless both only read.
func (l *Locker) TryLockAll(ctx context.Context, wants []Want, opts ...LockOption) (*MultiLease, error) {
	return l.acquireAll(ctx, wants, engine.Try, opts)
}

// DoAll runs fn under MultiLease.Context while it holds all the locks, as Do does under one lock. If LockAll fails, fn
// does not run and the error is LockAll's. Each lease that was lost while fn ran adds its *LostError to fn's error.
func (l *Locker) DoAll(
	ctx context.Context, wants []Want, fn func(context.Context) error, opts ...LockOption,
) error {
	if fn == nil {
		return errNilFn
	}
	all, err := l.LockAll(ctx, wants, opts...)
	return run(ctx, all, err, fn)
}

// acquireAll makes every MultiLease. It checks the caller's arguments before anything is sent.
func (l *Locker) acquireAll(
	ctx context.Context, wants []Want, entry engine.Entry, opts []LockOption,
) (*MultiLease, error) {
	l.mustBeMade()
	sorted, invalid := settings.InOrder(wants)
	if invalid != nil {
		return nil, (*OptionError)(invalid)
	}
	s, err := lockSettings(l, l.defaults, opts)
	if err != nil {
		return nil, err
	}
	limit := time.Duration(0)
	if entry == engine.Wait {
		limit = s.MaxWait
		for _, w := range wants {
			if err := l.nested(ctx, w.Name, s.Owner); err != nil {
				return nil, err
			}
		}
	}
	begun := cmp.Or(s.Begun, time.Now())
	within, cancel := limited(ctx, limit, begun)
	defer cancel()
	all, terms := engine.Several{Requests: make([]engine.Request, len(wants))}, s.Prepare()
	for i, at := range sorted {
		all.Requests[i] = engine.Request{
			Name: wants[at].Name, Mode: wants[at].Mode, Owner: s.Owner, Entry: entry, Terms: terms,
		}
	}
	m := &MultiLease{leases: make([]*Lease, len(wants))}
	all.Lease = func(i int) *engine.Lease {
		lease := &Lease{locker: l, owned: s.Owner != ""}
		m.leases[sorted[i]] = lease
		return &lease.inner
	}
	all.MayWait = func(name string) error { return l.mayWait(ctx, name, &s) }
	all.Accept = func() error {
		if s.Outer != nil {
			return s.Outer.Accept()
		}
		return nil
	}
	if err := l.engine.AcquireAll(within, all); err != nil {
		return nil, asWaited(convertError(err), time.Since(begun), ctx, within)
	}
	return m, nil
}

// mayWait returns ErrLockOrder if a call must not wait for this lock, because the caller holds a later one: another
// caller may hold this lock and wait for that one. Sections of other owners do not count, as in nested.
func (l *Locker) mayWait(ctx context.Context, name string, s *settings.Lock) error {
	for c := innermostLease(ctx); c != nil; c = innermostLease(c.Context.Context) {
		lease := c.lease
		if lease.locker != l || lease.Name() <= name || s.Owner != "" && lease.owned && lease.Owner() != s.Owner {
			continue
		}
		if c.stands() {
			return fmt.Errorf("%w: lock %q is not free, and the section that ctx comes from holds lock %q",
				ErrLockOrder, name, lease.Name())
		}
	}
	if s.Outer != nil {
		return s.Outer.MayWait(name)
	}
	return nil
}

// MultiLease is the leases of several locks that were taken together. Its methods are safe for concurrent use. Only the
// methods of a Locker make one: those of the zero value panic. Release of nil returns nil.
//
// Each lease is renewed, lost and reported by itself. The order of LockAll does not cover an Upgrade of one of them.
type MultiLease struct {
	leases []*Lease // in the caller's order
}

// made returns the leases, which the zero value has not: to use that is a fault of the program.
func (m *MultiLease) made() []*Lease {
	if m.leases == nil {
		panic("rwlock: a MultiLease is made by a Locker")
	}
	return m.leases
}

// Leases returns the leases in the order in which the caller has named the locks.
func (m *MultiLease) Leases() []*Lease { return slices.Clone(m.made()) }

// Context returns parent with the fences of all leases. It is cancelled when the first of them ends; context.Cause is
// then the value of that lease's Err. It stands for each of the locks as Lease.Context does: an acquisition that waits
// under it for one of them is ErrNested.
func (m *MultiLease) Context(parent context.Context) context.Context {
	for _, lease := range m.made() {
		parent = lease.Context(parent)
	}
	return parent
}

// Done is closed when the first of the leases has ended.
func (m *MultiLease) Done() <-chan struct{} { return m.Context(context.Background()).Done() }

// Err returns nil while all leases can be trusted. It returns the *LostError of a lost lease if there is one, and
// ErrReleased after Release, after Locker.Close and after the release of a single lease.
func (m *MultiLease) Err() error {
	var released error
	for _, lease := range m.made() {
		err := lease.Err()
		if errors.Is(err, ErrLost) {
			return err
		}
		released = cmp.Or(released, err)
	}
	return released
}

// Release gives all locks back, those of one server with one write. It continues when ctx has ended, and waits at most
// the release timeout for all together. The error joins what Lease.Release would return for each lease. A second
// Release, and Release of a nil MultiLease, returns nil unless a lease was lost.
func (m *MultiLease) Release(context.Context) error {
	if m == nil {
		return nil
	}
	return errs.Join(m.release()...)
}

// release returns the error of each lease.
func (m *MultiLease) release() []error {
	inner := make([]*engine.Lease, len(m.made()))
	for i, lease := range m.leases {
		inner[i] = &lease.inner
	}
	errs := m.leases[0].locker.engine.ReleaseAll(inner)
	for i, lease := range m.leases {
		errs[i] = lease.convertError(errs[i])
	}
	return errs
}

// end releases all locks, and returns the losses. An unconfirmed release continues in the background. It is no error of
// the work under the locks.
func (m *MultiLease) end(context.Context) (losses []error) {
	return slices.DeleteFunc(m.release(), func(err error) bool { return !errors.Is(err, ErrLost) })
}
