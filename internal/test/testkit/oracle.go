package testkit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/rwlock"
)

// Oracle checks what a lock promises over all processes of a test. At each acquisition no other trusted lease that
// excludes it stands, and its token is greater than
//   - every token that had been reported for that name before the attempt began, and
//   - the tokens of all leases that had ended and that it had to wait for.
//
// The second is the order of acquisition. Leases that may share the lock have no order: readers are compared with
// writers alone, and two readers may have one token.
type Oracle struct {
	t     testing.TB
	label string

	mu     sync.Mutex
	epoch  int // of exclusion; see Amnesia
	names  map[string]*account
	Grants int // leases that were entered
	lost   int // leases that ended before they were released
}

// account is what is known of one name.
type account struct {
	reported map[rwlock.Mode]fencing.Token
	ended    map[rwlock.Mode]fencing.Token
	tokens   map[fencing.Token]rwlock.Mode
	standing map[Grant]int // with the epoch in which the attempt began
}

// Grant is a lease, or the part of one goroutine in a shared hold; see Visit.
type Grant interface {
	Mode() rwlock.Mode
	Token() fencing.Token
	Err() error
	Deadline() time.Time
}

// Attempt is what an acquisition is measured against.
type Attempt struct {
	name  string
	floor map[rwlock.Mode]fencing.Token // by the mode of the new lease
	epoch int
}

// NewOracle returns an oracle that puts the label before its failures.
func NewOracle(t testing.TB, label string) *Oracle {
	return &Oracle{t: t, label: label, names: make(map[string]*account)}
}

// account must be called under mu.
func (o *Oracle) account(name string) *account {
	a := o.names[name]
	if a == nil {
		a = &account{
			reported: make(map[rwlock.Mode]fencing.Token), ended: make(map[rwlock.Mode]fencing.Token),
			tokens:   make(map[fencing.Token]rwlock.Mode),
			standing: make(map[Grant]int),
		}
		o.names[name] = a
	}
	return a
}

// Begin is to be called before an acquisition.
func (o *Oracle) Begin(name string) Attempt {
	o.mu.Lock()
	defer o.mu.Unlock()
	a := o.account(name)
	floor := map[rwlock.Mode]fencing.Token{
		rwlock.Read: a.reported[rwlock.Write], rwlock.Write: max(a.reported[rwlock.Read], a.reported[rwlock.Write]),
	}
	return Attempt{name: name, floor: floor, epoch: o.epoch}
}

// Acquired enters a lease as soon as it is there.
func (o *Oracle) Acquired(at Attempt, lease Grant) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.Grants++
	a, token := o.account(at.name), lease.Token()
	if floor := at.floor[lease.Mode()]; token <= floor {
		o.violated("%s of %q has token %v, and %v had been reported before it began", lease.Mode(), at.name, token, floor)
	}
	if first, twice := a.tokens[token]; twice && (first == rwlock.Write || lease.Mode() == rwlock.Write) {
		o.violated("token %v of %q was given out twice, for a %s and a %s", token, at.name, first, lease.Mode())
	}
	a.tokens[token] = lease.Mode()
	a.reported[lease.Mode()] = max(a.reported[lease.Mode()], token)
	o.settle(a)
	if at.epoch == o.epoch {
		o.compare(at.name, a, lease)
	}
	a.standing[lease] = at.epoch
}

// compare checks a lease against all leases that it must not overlap.
func (o *Oracle) compare(name string, a *account, lease Grant) {
	if lease.Err() != nil {
		return
	}
	for other, epoch := range a.standing {
		if epoch == o.epoch && other != lease && !mayShare(lease, other) {
			o.violated("%q is held by a %s with token %v (until %v) and a %s with token %v (until %v)", name,
				other.Mode(), other.Token(), other.Deadline().UnixMilli(),
				lease.Mode(), lease.Token(), lease.Deadline().UnixMilli())
		}
	}
	for _, mode := range []rwlock.Mode{rwlock.Read, rwlock.Write} {
		if mode == rwlock.Read && lease.Mode() == rwlock.Read {
			continue
		}
		if last := a.ended[mode]; lease.Token() <= last {
			o.violated("%s of %q has token %v, and a %s with token %v had ended", lease.Mode(), name, lease.Token(), mode, last)
		}
	}
}

// settle moves the leases that have ended to what has been. It must be called under mu.
func (o *Oracle) settle(a *account) {
	for lease, epoch := range a.standing {
		if lease.Err() == nil {
			continue
		}
		delete(a.standing, lease)
		if epoch == o.epoch {
			a.ended[lease.Mode()] = max(a.ended[lease.Mode()], lease.Token())
		}
		if !errors.Is(lease.Err(), rwlock.ErrReleased) {
			o.lost++
		}
	}
}

// Sweep compares all standing leases once more, at any moment.
func (o *Oracle) Sweep() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for name, a := range o.names {
		o.settle(a)
		for one := range a.standing {
			for other := range a.standing {
				same := a.standing[one] == o.epoch && a.standing[other] == o.epoch
				if one != other && same && !mayShare(one, other) {
					o.violated("%q is held twice: tokens %v and %v", name, one.Token(), other.Token())
				}
			}
		}
	}
}

// Amnesia notes that a master forgot leases and does not know of it: exclusion is not promised between what was
// acquired or attempted before and what comes after. The order of the tokens is.
func (o *Oracle) Amnesia() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.epoch++
	for _, a := range o.names {
		clear(a.ended)
	}
}

func (o *Oracle) violated(format string, args ...any) {
	o.t.Errorf("%s: %s", o.label, fmt.Sprintf(format, args...))
}

// Summary says how much was checked.
func (o *Oracle) Summary() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return fmt.Sprintf("%d leases, %d of them lost", o.Grants, o.lost)
}

func mayShare(a, b Grant) bool {
	return a.Mode() == rwlock.Read && b.Mode() == rwlock.Read || a.Err() != nil || b.Err() != nil
}

// Visit is what one goroutine has of an RWMutex: a Grant that a conversion changes.
type Visit struct {
	fence atomic.Pointer[fencing.Fence]
	ctx   context.Context
	left  atomic.Bool
}

// NewVisit is the visit of a goroutine that has just locked mu.
func NewVisit(mu *rwlock.RWMutex, name string, mode rwlock.Mode) *Visit {
	v := &Visit{ctx: mu.Context(context.Background())}
	v.Is(fencing.Fence{Resource: name, Token: mu.Token(), Mode: mode})
	return v
}

// Is changes the mode and the token.
func (v *Visit) Is(f fencing.Fence) { v.fence.Store(&f) }

// Fence returns the mode and the token.
func (v *Visit) Fence() fencing.Fence { return *v.fence.Load() }

// Mode is the mode of the section.
func (v *Visit) Mode() rwlock.Mode { return v.fence.Load().Mode }

// Token is the token of the section.
func (v *Visit) Token() fencing.Token { return v.fence.Load().Token }

// Err distinguishes a reader that has left from other readers, which keep the section going.
func (v *Visit) Err() error {
	if err := context.Cause(v.ctx); err != nil || !v.left.Load() {
		return err
	}
	return rwlock.ErrReleased
}

// Deadline is the end of the trust in the section.
func (v *Visit) Deadline() time.Time {
	deadline, _ := fencing.Deadline(v.ctx, v.fence.Load().Resource)
	return deadline
}

// Leave ends the visit.
func (v *Visit) Leave(ctx context.Context, mu *rwlock.RWMutex) error {
	unlock := mu.Unlock
	if v.Mode() == rwlock.Read {
		unlock = mu.RUnlock
	}
	v.left.Store(true)
	return unlock(ctx)
}
