// Package lockerr has the errors of a lock: why a call failed, with the failure of each master, and how a lease was
// lost. Package rwlock makes of them what users see.
package lockerr

import (
	"errors"
	"fmt"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/ballot"
	"github.com/seed74116694/fencelock/internal/errs"
	"github.com/seed74116694/fencelock/internal/hold"
	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/internal/wire"
)

// The causes without details.
var (
	ErrClosed   = errors.New("locker closed")
	ErrReleased = errors.New("lease released")
	// ErrServerClock is the refusal of a master if its clock is behind a token on which the other masters agreed.
	ErrServerClock = errors.New("its clock is more than a second behind the token that the other masters agreed on")
)

// CounterAhead is why a master, of several, does not agree with the others on a token: its clock was once ahead, and it
// has counted that far.
type CounterAhead struct{ By time.Duration }

func (e *CounterAhead) Error() string {
	return fmt.Sprintf("its counter for this lock is %v ahead of its clock, which was wrong once; "+
		"the next lease for writing that a quorum of the other masters grants sets it back", e.By)
}

type (
	NoReply      = transport.NoReply
	NotSent      = transport.NotSent
	Advised      = transport.Advised
	Unreplicated = transport.Unreplicated
	Breaker      = wire.Breaker // the operator of a Break, with the reason
)

// Abstaining is the answer of a master that has no vote at present.
type Abstaining struct {
	For time.Duration
	Err error // the reason that it has none; nil if that passes by itself
}

func (e *Abstaining) Unwrap() error { return e.Err }

func (e *Abstaining) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("has no vote: it %v", e.Err)
	}
	if e.For == 0 {
		return "in quarantine until its marker is read, which is missing or has changed"
	}
	return fmt.Sprintf("in quarantine for another %v: it is new, or may have lost valid leases", e.For)
}

// AsUnreplicated returns the error of a call that has run, but that too few replicas have confirmed.
func AsUnreplicated(err error) (*Unreplicated, bool) { return errors.AsType[*Unreplicated](err) }

// NodeFailure is the failure of one master.
type NodeFailure struct {
	Index int
	Addr  string
	Err   error
}

func (f *NodeFailure) Error() string { return fmt.Sprintf("%s: %v", f.Addr, f.Err) }

func (f *NodeFailure) Unwrap() error { return f.Err }

// NodeFailures are the causes of several masters, at most one for each master, in the order of the masters.
type NodeFailures []NodeFailure

func (f NodeFailures) Error() string { return errs.Join(f.Unwrap()...).Error() }

func (f NodeFailures) Unwrap() []error {
	all := make([]error, 0, len(f))
	for i := range f {
		all = append(all, &f[i])
	}
	return all
}

// Op is the call that failed.
type Op uint8

const (
	OpAcquire Op = iota // also the acquisition of a conversion
	OpRenew
	OpRelease
	OpBreak
	OpAdopt // also the releases of the adopted hold
)

// Kind says why a call failed: a verdict of the ballot, or an end without a verdict.
type Kind ballot.Verdict

const (
	Undecided = Kind(ballot.Open)      // a renewal, and ctx ended before its result
	Contended = Kind(ballot.Contended) // other holds have the lock
	NoQuorum  = Kind(ballot.NoQuorum)  // fewer than a quorum of the masters answered
	Conflict  = Kind(ballot.Conflict)  // a key of the lock holds something else
	Short     = Kind(ballot.Short)     // too few replicas have it
	Absent    = Kind(ballot.Absent)    // a join, and the owner holds nothing there any more
	OnlyReads = Kind(ballot.OnlyReads) // a join for writing, and the owner only reads
	Rival     = Kind(ballot.Rival)     // an upgrade, and another reader is upgrading already

	Closed         = Kind(ballot.LastVerdict) + 1 // the engine was closed
	InvalidMasters = Kind(ballot.LastVerdict) + 2 // the set of masters cannot be used
	Gone           = Kind(ballot.LastVerdict) + 3 // an adoption, and the detached hold is not there; Err says why
)

// Refusal derives from the failures what keeps a quorum of all masters from carrying out a call. forGood reports that
// so many refusals are permanent that no quorum can come about by asking again.
func (f NodeFailures) Refusal(all []*transport.Master) (kind Kind, forGood bool) {
	conflicts, shorts, permanent := 0, 0, 0
	for _, cause := range f {
		_, short := AsUnreplicated(cause.Err)
		switch {
		case short:
			shorts++
		case transport.Conflict(cause.Err):
			conflicts++
		case all[cause.Index].Permanent(cause.Err):
			permanent++
		}
	}
	switch spare := (len(all) - 1) / 2; {
	case conflicts+shorts+permanent <= spare:
		return NoQuorum, false
	case conflicts > 0:
		return Conflict, conflicts+permanent > spare
	case shorts > 0:
		return Short, permanent > spare
	default:
		return NoQuorum, true
	}
}

// Error reports an acquisition, a renewal or a release that the masters did not confirm. A failed acquisition leaves no
// lease. After a failed renewal the lease stands until its deadline. A release that no quorum confirmed in time
// continues in the background until the hold must have expired, unless so many masters refuse it for good that no
// quorum is possible any more.
type Error struct {
	Op        Op
	Kind      Kind
	Unknown   bool // the call may still take effect: a request has no answer, or the release continues
	Name      string
	Need, Got int          // masters: a quorum, and how many answered the acquisition or confirmed the other calls
	Nodes     NodeFailures // the masters that did not
	Err       error        // what ended the wait: the end of ctx, or nil

	// Of an acquisition only.
	Mode     fencing.Mode
	Attempts int
	Waited   time.Duration
	Holder   *wire.Holder  // a holder in the way, if a master showed it
	Own      bool          // at the end of a wait: this process has the Holder
	Claimed  fencing.Token // of the hold that a join was for
}

func (e *Error) Error() string {
	text := fmt.Sprintf("confirmed by %d masters of %d needed", e.Got, e.Need)
	if len(e.Nodes) > 0 {
		text += "; " + e.Nodes.Error()
	}
	return text
}

func (e *Error) Unwrap() error { return e.Err }

// ProcessLate is the silence of a master while this process was late itself: its timers fired late, so it may have
// asked late, or may not have read an answer that was there.
type ProcessLate struct {
	By      time.Duration
	Silence *NoReply
}

func (e *ProcessLate) Error() string { return fmt.Sprintf("%v; %s", e.Silence, e.Lateness()) }

func (e *ProcessLate) Unwrap() error { return e.Silence }

func (e *ProcessLate) Lateness() string {
	return fmt.Sprintf("this process was busy or paused, its timers were up to %v late", e.By.Round(time.Millisecond))
}

// OfMaster returns what a master did not do for a lock.
func OfMaster(m *transport.Master, key string, err error) NodeFailure {
	return NodeFailure{Index: m.Index, Addr: m.At(key).Addr(), Err: err}
}

// Reason says why a lease ended without Release.
type Reason = hold.Reason

const (
	Expired     = hold.Expired
	Taken       = hold.Taken
	Unreachable = hold.Unreachable
	Paused      = hold.Paused
	MaxHold     = hold.MaxHold
	Broken      = hold.ByOperator
)

// Reasons are all of them.
var Reasons = [...]Reason{Expired, Taken, Unreachable, Paused, MaxHold, Broken}

// Loss is the end of a lease without Release. It is not the failure of one call: every user of the lock has to learn of
// it, so every call of a lost lease returns it, and its contexts end with it as their cause.
type Loss struct {
	Name    string
	Token   fencing.Token
	Reason  Reason
	Limit   time.Duration // the TTL, the hand-off TTL, or MaxHold; 0 for Taken and Broken
	HandOff bool          // the lease was a hand-off that no renewal had confirmed
	Err     error         // why the masters did not renew it, the *Breaker, or nil
}

func (l *Loss) Error() string { return fmt.Sprintf("lease of %q lost", l.Name) }

func (l *Loss) Unwrap() error { return l.Err }
