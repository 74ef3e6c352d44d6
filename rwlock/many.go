package rwlock

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/seed74116694/fencelock/internal/engine"
	"github.com/seed74116694/fencelock/internal/errs"
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
	errs := engine.ReleaseAll(inner)
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
