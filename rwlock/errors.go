package rwlock

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/errs"
	"github.com/seed74116694/fencelock/internal/lockerr"
	"github.com/seed74116694/fencelock/internal/transport"
)

// The causes, for errors.Is. A cause with a type in its comment comes as that type, for errors.As.
var (
	ErrNotAcquired = errors.New("rwlock: lock not acquired")    // it is held, or ctx ended before: *AcquireError
	ErrNoQuorum    = errors.New("rwlock: no quorum of masters") // too few answered: *QuorumError
	ErrLost        = fencing.ErrLost                            // ended without Release: *LostError
	ErrReleased    = errors.New("rwlock: lease released")       // used after Release
	ErrNotHeld     = errors.New("rwlock: not held")             // unlocked without a hold
	ErrUpgrade     = errors.New("rwlock: cannot upgrade")       // see Lease.Upgrade
	ErrNested      = errors.New("rwlock: the caller already holds this lock")
	ErrLockOrder   = errors.New("rwlock: the caller holds a later lock") // and would wait for this one: see LockAll
	ErrReplicas    = errors.New("rwlock: too few replicas")              // hold the grant, which is released: *QuorumError
	ErrConflict    = errors.New("rwlock: key holds something else")      // WRONGTYPE or the like: *QuorumError
	ErrTicket      = errors.New("rwlock: ticket refused")                // see Locker.Adopt: *TicketError
	ErrClosed      = errors.New("rwlock: locker closed")                 // used after Close
	ErrOption      = errors.New("rwlock: option or argument refused")    // *OptionError
)

// AcquireError is returned by an acquisition that ended while another client held the lock, or whose ctx had ended
// before the acquisition began.
type AcquireError struct {
	Name     string
	Mode     Mode
	Attempts int           // requests sent to a master
	Waited   time.Duration // since the call
	Holder   *Holder       // a holder that blocks the acquisition, as last seen; nil if no master showed one
	Err      error         // what ended the wait: matches ctx.Err() if ctx ended; nil if a single attempt met a holder

	unknown bool // see Indeterminate
	own     bool // this process has the Holder, and waited for it
}

// Error names the lock, the time waited, and a holder that blocks it if a master showed one. A holder of this process
// may be an outer function that has not passed on the context of its section: then the wait was for the caller itself.
func (e *AcquireError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "rwlock: %s lock %q not acquired after %v", e.Mode, e.Name, e.Waited.Round(time.Millisecond))
	if h := e.Holder; h != nil {
		left := h.Remaining.Round(time.Millisecond)
		if h.Ended {
			fmt.Fprintf(&b, ": ended by %s (%q) before its minimum, kept for another %v", h.Owner, h.Meta, left)
		} else {
			itself := ""
			if e.own {
				itself = "; this process itself: was the ctx of its section passed on?"
			}
			fmt.Fprintf(&b, ": held by %s for %s (%q, expires in %v%s)", h.Owner, h.Mode, h.Meta, left, itself)
		}
	}
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	return b.String()
}

func (e *AcquireError) Is(target error) bool { return target == ErrNotAcquired }

func (e *AcquireError) Unwrap() error { return e.Err }

// Reason says why a lease was lost, with the same text in errors, logs and metrics.
type Reason string

// The reasons of a LostError.
const (
	ReasonExpired    Reason = "expired"     // its TTL was over, and it was not to be renewed
	ReasonGone       Reason = "gone"        // Redis (of several: a quorum) no longer has the hold
	ReasonNotRenewed Reason = "not renewed" // no renewal was confirmed by Redis (of several: a quorum) before the deadline
	ReasonPaused     Reason = "paused"      // this process or machine was suspended past the deadline
	ReasonMaxHold    Reason = "max hold"    // the limit of WithMaxHold was reached
	ReasonBroken     Reason = "broken"      // an operator has broken the hold: see Locker.Break
)

// LostError reports the end of a lease that was not released. Another client may hold the lock since then. It does not
// say that work under the lease failed: see Completed. docs/operate.md has what to do about each reason.
type LostError struct {
	Name   string
	Token  fencing.Token // what the storage must refuse once it has seen a newer one
	Reason Reason
	// Limit is the TTL, the time limit of a hand-off until it is confirmed, or of WithMaxHold; 0 if gone or broken.
	Limit time.Duration
	// Err is why the masters did not renew it: *NodeErrors, joined; *BrokenError; or nil.
	Err error

	handOff bool // Limit is the time limit of a hand-off
}

func (e *LostError) Error() string {
	text := fmt.Sprintf("rwlock: lease of %q with token %v lost: %s", e.Name, e.Token, e.Reason)
	switch {
	case e.Limit == 0:
	case e.Reason == ReasonPaused && !e.handOff:
		text += fmt.Sprintf(" (its TTL is %v); advice: WithTTL above the longest pause of this process", e.Limit)
	case e.Reason == ReasonMaxHold:
		text += fmt.Sprintf(" of %v was reached", e.Limit)
	case e.handOff:
		text += fmt.Sprintf(" (a hand-off lasts %v until a renewal confirms it)", e.Limit)
	default:
		text += fmt.Sprintf(" (its TTL is %v)", e.Limit)
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

func (e *LostError) Is(target error) bool {
	other, ok := target.(*LostError)
	return target == ErrLost || ok && other != nil && other.Name == e.Name && other.Token == e.Token
}

// As converts the error to a *fencing.LostError, the form in which a loss is sent to another process.
func (e *LostError) As(target any) bool {
	told, ok := target.(**fencing.LostError)
	if ok {
		*told = &fencing.LostError{Resource: e.Name, Token: e.Token, Reason: string(e.Reason)}
	}
	return ok
}

func (e *LostError) Unwrap() error { return e.Err }

// BrokenError is the cause of a lease that an operator has broken, and of an acquisition that waited: see Locker.Break.
type BrokenError struct {
	By, Why string
	Now     bool // by BreakNow or BreakOnceHeard: the lock is not kept until the lease is released
}

func (e *BrokenError) Error() string { return fmt.Sprintf("broken by %q: %q", e.By, e.Why) }

// OptionError reports an option, a name or another argument that breaks a rule. No request for a lock was sent, with
// one exception: the rule that masters must be usable together is checked by requests to them, and a violation also
// fails the acquisitions that already wait.
type OptionError struct {
	Option string // the option or argument
	Value  any
	Rule   string
}

func (e *OptionError) Error() string {
	return fmt.Sprintf("rwlock: %s: %v: %s", e.Option, e.Value, e.Rule)
}

func (e *OptionError) Is(target error) bool { return target == ErrOption }

// Indeterminate reports whether err leaves open if the request was carried out: it was sent and not answered. After an
// acquisition or a release the library keeps releasing the hold in the background until it must have expired.
func Indeterminate(err error) bool {
	if a, ok := errors.AsType[*AcquireError](err); ok {
		return a.unknown
	}
	if q, ok := errors.AsType[*QuorumError](err); ok {
		return q.unknown
	}
	return false
}

// Completed reports, for the error of a Do that matches ErrLost, whether its function had returned nil: the work ran to
// its end, and what the storage has accepted stays. ErrLost alone does not say that the work failed, so a caller that
// repeats the work on ErrLost without this question may do it twice. Completed is false if the function has returned an
// error, also that of a section inside which was completed itself, and for an error of any other call. It covers TryDo,
// RDo, TryRDo and DoAll, whichever of their leases were lost, and the same forms of package reentrant.
func Completed(err error) bool { return errs.Completed(err) }

// QuorumError reports a call that fewer masters carried out than a quorum needs. The holders of the lock are unknown
// then. Its text ends with advice where that is known, as for a password, a full server or a wrong address.
//
// It matches ErrNoQuorum, with two exceptions. It matches ErrConflict if no quorum is possible because masters hold
// something else under a key of the lock, even if only one master does and the rest refuse for another reason. It
// matches ErrReplicas if masters have granted the lock and too few replicas have confirmed the grant.
type QuorumError struct {
	Name      string
	Need, Got int         // masters; one Redis is a quorum of one
	Nodes     []NodeError // the masters that failed, each with its own cause
	Err       error       // what ended the wait, or what happens to a release or a renewal; or nil

	cause   error // ErrConflict or ErrReplicas; nil for ErrNoQuorum
	unknown bool  // see Indeterminate
}

func (e *QuorumError) Error() string {
	var b strings.Builder
	b.WriteString("rwlock: ")
	if e.Name != "" {
		fmt.Fprintf(&b, "lock %q: ", e.Name)
	}
	switch {
	case e.cause == ErrConflict:
		b.WriteString("key holds something else")
	case e.cause == ErrReplicas:
		b.WriteString("too few replicas confirmed it")
	case e.Need == 1:
		b.WriteString("no usable answer from Redis")
	default:
		fmt.Fprintf(&b, "no quorum: %d of the %d masters that it needs", e.Got, e.Need)
	}
	for i := range e.Nodes {
		fmt.Fprintf(&b, "; %v", &e.Nodes[i])
	}
	if e.Err != nil {
		fmt.Fprintf(&b, "; %v", e.Err)
	}
	for _, n := range e.Nodes { // what to do, once for all servers that fail alike
		if cure := transport.Cure(n.Err); !strings.Contains(b.String(), cure) {
			fmt.Fprintf(&b, "; advice: %s", cure)
		}
	}
	return b.String()
}

func (e *QuorumError) Is(target error) bool {
	if e.cause != nil {
		return target == e.cause
	}
	return target == ErrNoQuorum
}

func (e *QuorumError) Unwrap() []error {
	all := asErrors(e.Nodes)
	if e.Err != nil {
		all = append(all, e.Err)
	}
	return all
}

// NodeError is one master's failure.
type NodeError struct {
	Index int // in the order given to New or Open
	Addr  string
	Err   error // the server's refusal, a failure of the link, *NoReplyError, *AbstainError or *ReplicasError
}

func (e *NodeError) Error() string { return fmt.Sprintf("%s: %v", e.Addr, e.Err) }

func (e *NodeError) Unwrap() error { return e.Err }

// NoReplyError is the cause of a master that did not answer within its time: the node timeout, for a release the
// release timeout, what ctx left, or for Dial the timeout of the dialer. It never matches the end of a context.
type NoReplyError struct{ After time.Duration }

func (e *NoReplyError) Error() string { return (*lockerr.NoReply)(e).Error() }

// ReplicasError is the cause of a master that has granted a lock or renewed a lease, and whose replicas did not confirm
// this in time.
type ReplicasError struct {
	Need, Got int           // replicas
	After     time.Duration // the time that they had
	Err       error         // why the number is unknown, or nil
}

func (e *ReplicasError) Error() string {
	return (&lockerr.Unreplicated{Need: e.Need, Got: e.Got, After: e.After, Err: e.Err}).Error()
}

func (e *ReplicasError) Is(target error) bool { return target == ErrReplicas }

func (e *ReplicasError) Unwrap() error { return e.Err }

// AbstainError is the cause of a master that answered but has no vote, because it is new or may have lost leases that
// are still valid. For is the time until it votes; 0 means unknown, for a master without a marker. Err is the reason if
// time alone does not end this: the master is not in order, for example a replica, or a server that the other masters
// do not know.
type AbstainError struct {
	For time.Duration
	Err error
}

func (e *AbstainError) Unwrap() error { return e.Err }

func (e *AbstainError) Error() string { return (*lockerr.Abstaining)(e).Error() }

// convertError converts the engine's errors into errors of this package. No other function does. The engine's errors
// describe the event; the errors of this package describe what it means to the caller: the holder of the lock, or the
// masters that did not answer. Any other error is returned unchanged.
func convertError(err error) error {
	switch e := err.(type) {
	case *lockerr.Error:
		return callError(e)
	case *lockerr.Loss:
		return &LostError{
			Name: e.Name, Token: e.Token, Reason: Reason(e.Reason), Limit: e.Limit, Err: convertError(e.Err),
			handOff: e.HandOff,
		}
	case lockerr.NodeFailures:
		return errs.Join(asErrors(nodeErrors(e))...)
	case *lockerr.NodeFailure:
		return &NodeError{Index: e.Index, Addr: e.Addr, Err: convertError(e.Err)}
	case *lockerr.NoReply:
		return (*NoReplyError)(e)
	case *lockerr.ProcessLate:
		return fmt.Errorf("%w; %s", convertError(e.Silence), e.Lateness())
	case *lockerr.NotSent:
		if e.Final {
			return convertError(e.Cause)
		}
		return fmt.Errorf("failed a moment ago: %w", convertError(e.Cause))
	case *lockerr.Advised:
		return &lockerr.Advised{Refusal: convertError(e.Refusal), Advice: e.Advice}
	case *lockerr.Unreplicated:
		return &ReplicasError{Need: e.Need, Got: e.Got, After: e.After, Err: e.Err}
	case *lockerr.Breaker:
		return &BrokenError{By: e.Who, Why: e.Why, Now: e.Now}
	case *lockerr.Abstaining:
		return (*AbstainError)(e)
	}
	if errors.Is(err, lockerr.ErrClosed) {
		return ErrClosed
	}
	return err
}

// callError converts the error of an acquisition, a renewal or a release. Each kind matches one sentinel error. A held
// lock is no fault, and the caller tries again later. Masters that do not answer are a case for their operator.
func callError(e *lockerr.Error) error {
	switch e.Kind {
	case lockerr.Contended:
		return acquireError(e)
	case lockerr.Undecided:
		return fmt.Errorf("rwlock: lock %q: renewal not confirmed: %w", e.Name, e.Err)
	case lockerr.Absent:
		return &LostError{Name: e.Name, Token: e.Claimed, Reason: ReasonGone}
	case lockerr.Rival:
		return fmt.Errorf("%w: another reader of lock %q is upgrading already", ErrUpgrade, e.Name)
	case lockerr.OnlyReads:
		return fmt.Errorf("%w: lock %q is held for reading by the same owner", ErrUpgrade, e.Name)
	case lockerr.Gone:
		if by, broken := e.Err.(*lockerr.Breaker); broken {
			return &TicketError{Name: e.Name, Reason: "its hold was broken", Err: convertError(by)}
		}
		return &TicketError{Name: e.Name, Reason: e.Err.Error()}
	case lockerr.Closed:
		return fmt.Errorf("%w: lock %q", ErrClosed, e.Name)
	case lockerr.InvalidMasters:
		return &OptionError{Option: "masters", Value: e.Need*2 - 1, Rule: e.Err.Error()}
	default:
		return quorumError(e)
	}
}

func acquireError(e *lockerr.Error) error {
	return &AcquireError{
		Name: e.Name, Mode: e.Mode, Attempts: e.Attempts, Waited: e.Waited, Holder: (*Holder)(e.Holder),
		Err: waitEnd(e.Err), unknown: e.Unknown, own: e.Own,
	}
}

// waitEnd returns the end of a wait. The limit of WithMaxWait matches no context error, although a context keeps it.
func waitEnd(err error) error {
	if limit, ok := errors.AsType[*maxWaitError](err); ok {
		return limit
	}
	return convertError(err)
}

// What happens after a renewal or a release that is not confirmed.
var (
	errUnrenewed = errors.New("renewal not confirmed; the lease is valid until its deadline")
	errPending   = errors.New("release not confirmed; it continues in the background until the hold has expired")
	errRefused   = errors.New("release refused, not retried; the hold ends with its TTL")
)

// quorumError separates a release that has no answer and continues from a release that the masters refuse for good. In
// both cases the lock is free by the TTL at the latest. In the second case no further release is sent.
func quorumError(e *lockerr.Error) error {
	quorum := &QuorumError{
		Name: e.Name, Need: e.Need, Got: e.Got, Nodes: nodeErrors(e.Nodes), Err: waitEnd(e.Err), unknown: e.Unknown,
	}
	switch e.Kind {
	case lockerr.Conflict:
		quorum.cause = ErrConflict
	case lockerr.Short:
		quorum.cause = ErrReplicas
	}
	switch {
	case e.Op == lockerr.OpRenew:
		quorum.Err = errUnrenewed
	case e.Op == lockerr.OpAcquire || e.Op == lockerr.OpBreak || e.Op == lockerr.OpAdopt || e.Kind == lockerr.Conflict:
	case e.Unknown:
		quorum.Err = errPending
	default:
		quorum.Err = errRefused
	}
	return quorum
}

// nodeErrors returns each master's own cause, which a caller finds with errors.As.
func nodeErrors(nodes []lockerr.NodeFailure) []NodeError {
	all := make([]NodeError, 0, len(nodes))
	for _, n := range nodes {
		all = append(all, NodeError{Index: n.Index, Addr: n.Addr, Err: convertError(n.Err)})
	}
	return all
}

func asErrors(nodes []NodeError) (all []error) {
	for i := range nodes {
		all = append(all, &nodes[i])
	}
	return all
}
