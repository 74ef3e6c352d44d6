package reentrant

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed74116694/fencelock/internal/engine"
	"github.com/seed74116694/fencelock/internal/errs"
	"github.com/seed74116694/fencelock/internal/owners"
	"github.com/seed74116694/fencelock/internal/settings"
	"github.com/seed74116694/fencelock/rwlock"
)

// LockAll takes several locks, each in its mode, for the owner in ctx: all of them, or none. It nests in those that the
// owner holds, and takes the others together as rwlock.Locker.LockAll does, with its options and errors. Under AsOwner
// it first tries to join each of them, one after the other. A Want for reading shares a lease for writing.
//
// If the owner holds a later lock in this process, in either mode, in which this call nests or not, LockAll does not
// wait for an earlier one, nor for another goroutine of the owner that waits for it: it returns rwlock.ErrLockOrder,
// because the holder of that one may wait for the later one. Holds of the owner in other processes count if this call
// has joined them. LockAll does not upgrade: a Want for writing of a lock that the owner holds for reading is
// rwlock.ErrUpgrade at once, because an upgrade could not be undone if another lock fails. Use Lock before.
func (l *Locker) LockAll(ctx context.Context, wants []rwlock.Want, opts ...rwlock.LockOption) (*MultiHold, error) {
	return l.acquireAll(ctx, wants, request{opts: opts})
}

// TryLockAll is LockAll with a single attempt, as rwlock.Locker.TryLockAll is.
func (l *Locker) TryLockAll(ctx context.Context, wants []rwlock.Want, opts ...rwlock.LockOption) (*MultiHold, error) {
	return l.acquireAll(ctx, wants, request{try: true, opts: opts})
}

// DoAll runs fn while the owner in ctx holds all the locks, as Do does for one; a ctx without an owner gets a new one.
// When DoAll returns, its holds have ended and so has every hold nested in them.
func (l *Locker) DoAll(
	ctx context.Context, wants []rwlock.Want, fn func(context.Context) error, opts ...rwlock.LockOption,
) error {
	if fn == nil {
		return errNilFn
	}
	ctx = WithOwner(ctx)
	all, err := l.LockAll(ctx, wants, opts...)
	return run(ctx, all, err, fn)
}

// acquireAll makes every MultiHold.
func (l *Locker) acquireAll(ctx context.Context, wants []rwlock.Want, r request) (*MultiHold, error) {
	sorted, invalid := settings.InOrder(wants)
	if invalid != nil {
		return nil, (*rwlock.OptionError)(invalid)
	}
	id, err := l.identity(ctx, wants[0].Name)
	if err != nil {
		return nil, err
	}
	r.many, r.begun = true, time.Now()
	for {
		m, err := l.tryTogether(ctx, id, r, wants, sorted)
		if err != engine.ErrAgain {
			return m, err
		}
	}
}

// tryTogether returns engine.ErrAgain, and has nothing, if another goroutine of the owner has changed what the owner
// has of the locks: the call begins again then.
func (l *Locker) tryTogether(
	ctx context.Context, id *identity, r request, wants []rwlock.Want, sorted []int,
) (*MultiHold, error) {
	t := &together{locker: l, ctx: ctx, id: id, r: r, parts: make([]part, len(wants))}
	complete := false
	defer func() { // also if a method of ctx panics
		if !complete {
			t.giveUp()
		}
	}()
	missing := make([]rwlock.Want, 0, len(wants))
	for i, at := range sorted {
		p := &t.parts[i]
		p.request, p.at = r, at
		p.name, p.mode = wants[at].Name, wants[at].Mode
		if err := t.begin(p); err != nil {
			return nil, err
		}
		if p.first && p.lease == nil {
			missing = append(missing, wants[at])
		}
	}
	var taken *rwlock.MultiLease
	var err error
	if len(missing) > 0 {
		taken, err = t.call(missing)
	} else {
		err = t.Accept()
	}
	if err != nil {
		return nil, err
	}
	complete = true
	return t.open(taken), nil
}

// together is one attempt of a call of several locks. What it has of them is its own until Accept: it nests in no
// section, and no other goroutine of the owner nests in its sections. So a call that fails ends no hold.
//
// While it waits for a lock it keeps the sections of earlier locks only, which it has taken, and while it waits for
// another goroutine of the owner it keeps none. So the goroutines of an owner do not wait for each other in a circle
// either, and none waits for a lock that is free.
type together struct {
	locker *Locker
	ctx    context.Context
	id     *identity
	r      request
	parts  []part // in byte order
}

// part is what a call of several locks has of one of them.
type part struct {
	request
	at      int           // among the caller's names
	first   bool          // the call opens the section; else it nests in it
	section *section      // nil before begin, and while the call does not keep the section that it opens
	lease   *rwlock.Lease // that joined a hold of another process, or nil; kept also without the section
	hold    *Hold         // nested, since Accept
}

// begin looks for a section to nest in, or enters a new one. Under AsOwner it tries to join.
func (t *together) begin(p *part) error {
	s, first := t.locker.section(t.ctx, t.id, p.name)
	if p.first = first; first {
		if p.section = s; t.id.joins {
			return t.join(p)
		}
		return nil
	}
	if !s.isOver() {
		if !p.try {
			if err := t.inOrder(p.name); err != nil {
				return err
			}
			t.giveUp() // before the wait: the other goroutine may need these
		}
		return cmp.Or(s.await(t.ctx, t.id, p.request), engine.ErrAgain)
	}
	p.section = s
	return t.mayNest(p)
}

// join looks for a hold of the owner on the masters. A lock that the call has joined has no section until Accept: other
// goroutines of the owner can join it too. Two calls for a and b, say, join a. If one stayed in the section of a
// meanwhile, the other, which has just got b, would give up both and begin again, and then they would do so in turns.
func (t *together) join(p *part) (err error) {
	p.leave()
	if p.lease, err = t.locker.join(t.ctx, t.id, p.request); p.lease != nil || err != nil {
		return err
	}
	return t.reenter(p)
}

// mayNest returns why the call must not nest in the section of that part, or ErrAgain if the section is over.
func (t *together) mayNest(p *part) error {
	if p.section.lease == nil {
		return engine.ErrAgain
	}
	refusal := p.section.refusal(t.ctx, t.id, p.request) // before the mutex: it may run the locker's hooks
	t.locker.mu.Lock()
	defer t.locker.mu.Unlock()
	if p.section.innermost == nil {
		return engine.ErrAgain
	}
	return cmp.Or(refusal, p.section.full())
}

// call takes the locks that the owner does not hold.
func (t *together) call(missing []rwlock.Want) (*rwlock.MultiLease, error) {
	return owners.Of(t.locker.remote).AcquireAll(t.ctx, missing, t.r.remote(t.id), t.r.begun, t, t.r.opts)
}

// MayWait is called before each wait for a lock of another client. It leaves the sections of later locks. It enters the
// section of this lock again if it has left that before.
func (t *together) MayWait(name string) error {
	if err := t.inOrder(name); err != nil {
		return err
	}
	var waits *part
	for i := range t.parts {
		switch p := &t.parts[i]; {
		case p.name > name:
			p.leave()
		case p.name == name:
			waits = p
		}
	}
	return t.reenter(waits)
}

// inOrder returns rwlock.ErrLockOrder if the owner holds a later lock: of the holds in other processes those count that
// this call has joined.
func (t *together) inOrder(name string) error {
	later := t.locker.laterThan(t.id.owner, name)
	for _, p := range t.parts {
		if p.name > name && p.lease != nil {
			later = append(later, p.lease)
		}
	}
	for _, lease := range later {
		if lease.Err() == nil {
			return fmt.Errorf("%w: lock %q is not free, and the owner holds lock %q", rwlock.ErrLockOrder, name, lease.Name())
		}
	}
	return nil
}

// laterThan returns the leases of the owner's open sections under later locks.
func (l *Locker) laterThan(owner Owner, name string) (later []*rwlock.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, s := range l.sections {
		if key.owner == owner && key.name > name && s.innermost != nil {
			later = append(later, s.lease)
		}
	}
	return later
}

// leave leaves the section that the call has to open.
func (p *part) leave() {
	if p.first && p.section != nil {
		p.section.begin(nil)
		p.section = nil
	}
}

// reenter enters the section that the call has left. If another goroutine of the owner has joined the lock since, the
// call nests there.
func (t *together) reenter(p *part) error {
	if p.section != nil {
		return nil
	}
	s, first := t.locker.section(t.ctx, t.id, p.name)
	switch {
	case first:
		p.section = s
		return nil
	case p.lease == nil || !s.isOver():
		return engine.ErrAgain
	}
	p.first, p.section = false, s
	return t.mayNest(p)
}

// Accept is called once the call has all other locks. It enters the sections that the call has left, and nests in the
// owner's sections: in all of them at once, or in none.
func (t *together) Accept() error {
	for i := range t.parts {
		p, check := &t.parts[i], t.mayNest
		if p.first {
			check = t.reenter
		}
		if err := check(p); err != nil {
			return err
		}
	}
	t.locker.mu.Lock()
	defer t.locker.mu.Unlock()
	for _, p := range t.parts {
		if !p.first && p.section.innermost == nil {
			return engine.ErrAgain
		}
		if !p.first && p.section.full() != nil {
			return p.section.full()
		}
	}
	for i := range t.parts {
		if p := &t.parts[i]; !p.first {
			p.hold = p.section.add()
		}
	}
	return nil
}

// open opens the sections of the locks that the call has.
func (t *together) open(taken *rwlock.MultiLease) *MultiHold {
	m := &MultiHold{holds: make([]*Hold, len(t.parts)), taken: taken}
	var leases []*rwlock.Lease
	if taken != nil { // else the owner has had all locks before
		leases = taken.Leases()
	}
	var unused []*rwlock.Lease // another goroutine has joined the lock too
	for _, p := range t.parts {
		h := p.hold
		if p.first {
			h = &Hold{section: p.section, depth: 1}
			if p.lease != nil {
				p.section.lease, m.joined = p.lease, append(m.joined, h)
			} else {
				p.section.lease, leases = leases[0], leases[1:]
			}
			p.section.begin(h)
		} else if p.lease != nil {
			unused = append(unused, p.lease)
		}
		m.holds[p.at] = h
	}
	releaseAll(unused)
	return m
}

// giveUp leaves what the call has entered and joined.
func (t *together) giveUp() {
	var left []*rwlock.Lease
	for i := range t.parts {
		p := &t.parts[i]
		if p.lease != nil {
			left = append(left, p.lease)
			p.lease = nil
		}
		p.leave()
	}
	releaseAll(left)
}

// releaseAll releases leases at the same time, so that one release timeout bounds them all, and returns their errors.
// As in rwlock.MultiLease, no values of a context reach hooks of the client: one that panics has no caller here.
func releaseAll(leases []*rwlock.Lease) []error {
	failures := make([]error, len(leases))
	var all sync.WaitGroup
	for i, lease := range leases {
		all.Go(func() { failures[i] = lease.Release(context.Background()) })
	}
	all.Wait()
	return failures
}

// MultiHold is the holds of one owner of several locks that were taken together. Its methods are safe for concurrent
// use. Only the methods of a Locker make one: those of the zero value panic. Release of nil returns nil.
type MultiHold struct {
	holds  []*Hold            // in the caller's order
	joined []*Hold            // the outermost holds that joined a hold of another process
	taken  *rwlock.MultiLease // of the other outermost holds; nil if there are none
}

// made returns the holds, which the zero value has not: to use that is a fault of the program.
func (m *MultiHold) made() []*Hold {
	if m.holds == nil {
		panic("reentrant: a MultiHold is made by a Locker")
	}
	return m.holds
}

// Holds returns the holds in the order in which the caller has named the locks.
func (m *MultiHold) Holds() []*Hold { return slices.Clone(m.made()) }

// Context returns parent with the fences of all holds and with the owner of parent. It is cancelled when the first of
// the holds or of their leases ends, with the cause of Hold.Context.
func (m *MultiHold) Context(parent context.Context) context.Context {
	for _, h := range m.made() {
		parent = h.Context(parent)
	}
	return parent
}

// Err returns nil while the leases of all holds can be trusted, else the *rwlock.LostError of a lost lease if there is
// one, and an error that matches rwlock.ErrReleased if the lock of one of them was given back.
func (m *MultiHold) Err() error {
	var released error
	for _, h := range m.made() {
		err := h.section.lease.Err()
		if isLoss(err) {
			return err
		}
		released = cmp.Or(released, err)
	}
	return released
}

// Release ends all holds. Locks that the call has taken are given back together, as rwlock.MultiLease.Release does.
// Those that it has joined are given back at the same time as each other. ErrOrder changes nothing: another hold nests
// in one of them and has to be released before. A second Release, and Release of a nil MultiHold, returns nil.
func (m *MultiHold) Release(ctx context.Context) error {
	if m == nil {
		return nil
	}
	failures, order := m.leave(ctx, false)
	return cmp.Or(order, errs.Join(failures...))
}

// leave removes the holds, and gives back the locks of which these were the outermost. Holds nested in them are removed
// too if forced; else they are ErrOrder, and nothing is removed.
func (m *MultiHold) leave(ctx context.Context, forced bool) (failures []error, order error) {
	left, order := takeOut(m.made(), forced, nil)
	var joinedLeases []*rwlock.Lease
	taken := false
	for _, x := range left {
		x.hold.endContexts(x.innermost)
		switch {
		case x.hold.outer != nil:
			if err := x.hold.section.lease.Err(); isLoss(err) {
				failures = append(failures, err)
			}
		case slices.Contains(m.joined, x.hold):
			joinedLeases = append(joinedLeases, x.hold.section.lease)
		default:
			taken = true
		}
	}
	failures = append(failures, releaseAll(joinedLeases)...)
	if taken {
		failures = append(failures, errs.Parts(m.taken.Release(ctx))...)
	}
	return failures, order
}

func isLoss(err error) bool { return errors.Is(err, rwlock.ErrLost) }
