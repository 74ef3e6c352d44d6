package redlock_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/rwlock"
)

// checker checks what a lock promises over all processes of a test: at each acquisition, that nobody else who believes
// in a lease may not be there beside it, and that its token is greater than
//   - every token that had been reported for that name before its attempt began, and
//   - the tokens of all leases that had ended and that it had to wait for.
//
// The second is the order of acquisition. Leases that may share the lock have no order: readers are compared with
// writers alone, and two readers may have one token.
type checker struct {
	t     testing.TB
	label string

	mu     sync.Mutex
	epoch  int // of exclusion; see amnesia
	names  map[string]*account
	grants int
	lost   int // leases that ended before they were released
}

// account is what is known of one name.
type account struct {
	reported map[rwlock.Mode]fencing.Token
	ended    map[rwlock.Mode]fencing.Token
	tokens   map[fencing.Token]rwlock.Mode
	standing map[grant]int // with the epoch in which its attempt began
}

// grant is a lease, or what one goroutine has of a cohort's.
type grant interface {
	Mode() rwlock.Mode
	Token() fencing.Token
	Err() error
	Deadline() time.Time
}

// attempt is what an acquisition is measured against.
type attempt struct {
	name  string
	floor map[rwlock.Mode]fencing.Token // by the mode of the new lease
	epoch int
}

func newChecker(t testing.TB, label string) *checker {
	return &checker{t: t, label: label, names: make(map[string]*account)}
}

// account must be called under mu.
func (b *checker) account(name string) *account {
	a := b.names[name]
	if a == nil {
		a = &account{
			reported: make(map[rwlock.Mode]fencing.Token), ended: make(map[rwlock.Mode]fencing.Token),
			tokens:   make(map[fencing.Token]rwlock.Mode),
			standing: make(map[grant]int),
		}
		b.names[name] = a
	}
	return a
}

// begin is to be called before an acquisition.
func (b *checker) begin(name string) attempt {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.account(name)
	floor := map[rwlock.Mode]fencing.Token{
		rwlock.Read: a.reported[rwlock.Write], rwlock.Write: max(a.reported[rwlock.Read], a.reported[rwlock.Write]),
	}
	return attempt{name: name, floor: floor, epoch: b.epoch}
}

// acquired enters a lease as soon as it is there.
func (b *checker) acquired(at attempt, lease grant) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.grants++
	a, token := b.account(at.name), lease.Token()
	if floor := at.floor[lease.Mode()]; token <= floor {
		b.violated("%s of %q has token %v, and %v had been reported before it began", lease.Mode(), at.name, token, floor)
	}
	if first, twice := a.tokens[token]; twice && (first == rwlock.Write || lease.Mode() == rwlock.Write) {
		b.violated("token %v of %q was given out twice, for a %s and a %s", token, at.name, first, lease.Mode())
	}
	a.tokens[token] = lease.Mode()
	a.reported[lease.Mode()] = max(a.reported[lease.Mode()], token)
	b.settle(a)
	if at.epoch == b.epoch {
		b.compare(at.name, a, lease)
	}
	a.standing[lease] = at.epoch
}

// compare checks a lease against all leases that it must not overlap.
func (b *checker) compare(name string, a *account, lease grant) {
	if lease.Err() != nil {
		return
	}
	for other, epoch := range a.standing {
		if epoch == b.epoch && other != lease && !mayShare(lease, other) {
			b.violated("%q is held by a %s with token %v (until %v) and a %s with token %v (until %v)", name,
				other.Mode(), other.Token(), other.Deadline().UnixMilli(),
				lease.Mode(), lease.Token(), lease.Deadline().UnixMilli())
		}
	}
	for _, mode := range []rwlock.Mode{rwlock.Read, rwlock.Write} {
		if mode == rwlock.Read && lease.Mode() == rwlock.Read {
			continue
		}
		if last := a.ended[mode]; lease.Token() <= last {
			b.violated("%s of %q has token %v, and a %s with token %v had ended", lease.Mode(), name, lease.Token(), mode, last)
		}
	}
}

// settle moves the leases that have ended to what has been. It must be called under mu.
func (b *checker) settle(a *account) {
	for lease, epoch := range a.standing {
		if lease.Err() == nil {
			continue
		}
		delete(a.standing, lease)
		if epoch == b.epoch {
			a.ended[lease.Mode()] = max(a.ended[lease.Mode()], lease.Token())
		}
		if !errors.Is(lease.Err(), rwlock.ErrReleased) {
			b.lost++
		}
	}
}

// sweep compares all standing leases once more, at any moment.
func (b *checker) sweep() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, a := range b.names {
		b.settle(a)
		for one := range a.standing {
			for other := range a.standing {
				same := a.standing[one] == b.epoch && a.standing[other] == b.epoch
				if one != other && same && !mayShare(one, other) {
					b.violated("%q is held twice: tokens %v and %v", name, one.Token(), other.Token())
				}
			}
		}
	}
}

// amnesia notes that all masters have lost their data at once, or that one forgot leases and does not know of it:
// exclusion is not promised between what was acquired or attempted before and what comes after. The order of the
// tokens is.
func (b *checker) amnesia() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.epoch++
	for _, a := range b.names {
		clear(a.ended)
	}
}

func (b *checker) violated(format string, args ...any) {
	b.t.Errorf("%s: %s", b.label, fmt.Sprintf(format, args...))
}

func (b *checker) summary() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return fmt.Sprintf("%d leases, %d of them lost", b.grants, b.lost)
}

func mayShare(a, b grant) bool {
	return a.Mode() == rwlock.Read && b.Mode() == rwlock.Read || a.Err() != nil || b.Err() != nil
}
