// Package judge checks from outside what locks promise: exclusion, and the order of the tokens.
package judge

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/rwlock"
)

// Judge checks what a lock promises over all holders of a process. At each acquisition no other trusted grant that
// excludes it stands, and its token is greater than
//   - every token that had been reported for that name before the attempt began, and
//   - the tokens of all grants that had ended and that it had to wait for.
//
// The second is the order of acquisition. Grants that may share the lock have no order: readers are compared with
// writers alone, and two readers may have one token.
type Judge struct {
	report func(Violation)

	mu     sync.Mutex
	epoch  int // of exclusion; see Amnesia
	names  map[string]*account
	grants int
	lost   int // grants that ended before they were released
}

// account is what is known of one name.
type account struct {
	reported map[rwlock.Mode]fencing.Token
	ended    map[rwlock.Mode]fencing.Token
	tokens   map[fencing.Token]rwlock.Mode
	standing map[Grant]int // with the epoch in which the attempt began
}

// Grant is a lease, or the part of one goroutine in a shared hold. Err is nil while its holder trusts it, and no longer
// than until its release begins.
type Grant interface {
	Mode() rwlock.Mode
	Token() fencing.Token
	Err() error
}

// Rule is a promise.
type Rule string

// The rules.
const (
	Exclusion Rule = "exclusion"
	Order     Rule = "order"
)

// Violation is a promise that was broken.
type Violation struct {
	Rule  Rule
	Text  string
	Older Grant // of two that did not exclude each other, or nil
	Newer Grant
}

// Attempt is what an acquisition is measured against.
type Attempt struct {
	name  string
	floor map[rwlock.Mode]fencing.Token // by the mode of the new grant
	epoch int
}

// New returns a judge that reports each violation at once.
func New(report func(Violation)) *Judge {
	return &Judge{report: report, names: make(map[string]*account)}
}

// For returns a judge that fails a test, with the label before what it has found.
func For(t interface {
	Errorf(format string, args ...any)
}, label string,
) *Judge {
	return New(func(v Violation) { t.Errorf("%s: %s", label, v.Text) })
}

// account must be called under mu.
func (j *Judge) account(name string) *account {
	a := j.names[name]
	if a == nil {
		a = &account{
			reported: make(map[rwlock.Mode]fencing.Token), ended: make(map[rwlock.Mode]fencing.Token),
			tokens:   make(map[fencing.Token]rwlock.Mode),
			standing: make(map[Grant]int),
		}
		j.names[name] = a
	}
	return a
}

// Begin is to be called before an acquisition.
func (j *Judge) Begin(name string) Attempt {
	j.mu.Lock()
	defer j.mu.Unlock()
	a := j.account(name)
	floor := map[rwlock.Mode]fencing.Token{
		rwlock.Read: a.reported[rwlock.Write], rwlock.Write: max(a.reported[rwlock.Read], a.reported[rwlock.Write]),
	}
	return Attempt{name: name, floor: floor, epoch: j.epoch}
}

// Acquired enters a grant as soon as it is there.
func (j *Judge) Acquired(at Attempt, grant Grant) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.grants++
	a := j.account(at.name)
	j.number(at, a, grant)
	j.settle(a)
	if at.epoch == j.epoch && grant.Err() == nil {
		j.compare(at.name, a, grant)
	}
	a.standing[grant] = at.epoch
}

// number checks a token against the reported ones.
func (j *Judge) number(at Attempt, a *account, grant Grant) {
	token, mode := grant.Token(), grant.Mode()
	if floor := at.floor[mode]; token <= floor {
		j.disordered(grant, "%s of %q has token %v, and %v had been reported before it began", mode, at.name, token, floor)
	}
	if first, twice := a.tokens[token]; twice && (first == rwlock.Write || mode == rwlock.Write) {
		j.disordered(grant, "token %v of %q was given out twice, for a %s and a %s", token, at.name, first, mode)
	}
	a.tokens[token] = mode
	a.reported[mode] = max(a.reported[mode], token)
}

func (j *Judge) disordered(grant Grant, format string, args ...any) {
	j.report(Violation{Rule: Order, Text: fmt.Sprintf(format, args...), Newer: grant})
}

// compare checks a grant against all grants that it must not overlap.
func (j *Judge) compare(name string, a *account, grant Grant) {
	for other, epoch := range a.standing {
		if epoch == j.epoch && other != grant && !mayShare(grant, other) {
			j.report(Violation{
				Exclusion, fmt.Sprintf("%q is held by a %s and a %s", name, described(other), described(grant)), other, grant,
			})
		}
	}
	for _, mode := range []rwlock.Mode{rwlock.Read, rwlock.Write} {
		if mode == rwlock.Read && grant.Mode() == rwlock.Read {
			continue
		}
		if last := a.ended[mode]; grant.Token() <= last {
			j.disordered(grant, "%s of %q has token %v, and a %s with token %v had ended",
				grant.Mode(), name, grant.Token(), mode, last)
		}
	}
}

// described names a grant, with the end of its trust if it shows it.
func described(grant Grant) string {
	text := fmt.Sprintf("%s with token %v", grant.Mode(), grant.Token())
	if ends, ok := grant.(interface{ Deadline() time.Time }); ok {
		text += fmt.Sprintf(" (until %v)", ends.Deadline().UnixMilli())
	}
	return text
}

// settle moves the grants that have ended to what has been. It must be called under mu.
func (j *Judge) settle(a *account) {
	for grant, epoch := range a.standing {
		if grant.Err() == nil {
			continue
		}
		delete(a.standing, grant)
		if epoch == j.epoch {
			a.ended[grant.Mode()] = max(a.ended[grant.Mode()], grant.Token())
		}
		if !errors.Is(grant.Err(), rwlock.ErrReleased) {
			j.lost++
		}
	}
}

// Sweep compares all standing grants once more, at any moment.
func (j *Judge) Sweep() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for name, a := range j.names {
		j.settle(a)
		for one := range a.standing {
			for other := range a.standing {
				same := a.standing[one] == j.epoch && a.standing[other] == j.epoch
				if one != other && same && !mayShare(one, other) {
					j.report(Violation{
						Exclusion, fmt.Sprintf("%q is held twice: %s, %s", name, described(one), described(other)), one, other,
					})
				}
			}
		}
	}
}

// Amnesia notes that a master forgot holds and does not know of it: exclusion is not promised between what was acquired
// or attempted before and what comes after. The order of the tokens is.
func (j *Judge) Amnesia() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.epoch++
	for _, a := range j.names {
		clear(a.ended)
	}
}

// Grants is how many grants were entered.
func (j *Judge) Grants() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.grants
}

// Summary says how much was checked.
func (j *Judge) Summary() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return fmt.Sprintf("%d leases, %d of them lost", j.grants, j.lost)
}

func mayShare(a, b Grant) bool {
	return a.Mode() == rwlock.Read && b.Mode() == rwlock.Read || a.Err() != nil || b.Err() != nil
}

// Section is a grant until its holder leaves.
type Section struct {
	Grant
	left atomic.Bool
}

// Leave is to be called before the grant is released.
func (s *Section) Leave() { s.left.Store(true) }

// Err is the grant's until its holder has left.
func (s *Section) Err() error {
	if err := s.Grant.Err(); err != nil || !s.left.Load() {
		return err
	}
	return rwlock.ErrReleased
}
