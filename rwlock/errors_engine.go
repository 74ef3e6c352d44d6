package rwlock

import (
	"errors"
	"fmt"
	"time"

	"github.com/seed74116694/fencelock/internal/engine"
	"github.com/seed74116694/fencelock/internal/joined"
)

// convertError converts the engine's errors into errors of this package. No other function does. The engine's errors
// describe the event; the errors of this package describe what it means to the caller: the holder of the lock, or the
// masters that did not answer. Any other error is returned unchanged.
func convertError(err error) error {
	switch e := err.(type) {
	case nil:
		return nil
	case *engine.Failure:
		return acquireError(e)
	case *engine.Loss:
		return &LostError{
			Name: e.Name, Token: e.Token, Reason: reasons[e.Reason], Limit: e.Limit, Err: convertError(e.Cause()),
			handOff: e.HandOff,
		}
	case *engine.Unconfirmed:
		return releaseError(e)
	case *engine.Unrenewed:
		return renewError(e)
	case *engine.NodeFailure:
		return &NodeError{Index: e.Index, Addr: e.Addr, Err: nodeCause(e.Err)}
	case engine.NodeFailures:
		return joined.Errors(asErrors(nodeErrors(e))...)
	}
	if errors.Is(err, engine.ErrClosed) {
		return ErrClosed
	}
	return nodeCause(err)
}

// convertError converts the error of a call of this lease, and adds the name of a released lock.
func (l *Lease) convertError(err error) error {
	if err == engine.ErrReleased {
		return &releasedError{l.Name()}
	}
	return convertError(err)
}

// releasedError is ErrReleased with the name of the lock.
type releasedError struct{ name string }

func (e *releasedError) Error() string { return fmt.Sprintf("%v: lock %q", ErrReleased, e.name) }

func (e *releasedError) Unwrap() error { return ErrReleased }

// What happens after a release that is not confirmed.
var (
	errPending = errors.New("release not confirmed; it continues in the background until the hold has expired")
	errRefused = errors.New("release refused, not retried; the hold ends with its TTL")
)

// reasons maps the engine's reasons for the end of a lease to the Reasons of this package.
var reasons = map[engine.Reason]Reason{
	engine.Expired: Expired, engine.Taken: Taken, engine.Unreachable: NoQuorum,
	engine.Paused: Paused, engine.MaxHold: MaxHold,
}

// acquireError separates a lock that is held from masters that did not answer. Each failure matches one sentinel error.
// A held lock is no fault, and the caller tries again later. Masters that do not answer are a case for their operator.
func acquireError(f *engine.Failure) error {
	end := f.Err
	if u, ok := end.(*engine.Untaken); ok {
		end = fmt.Errorf("the %s hold was granted and lost before the conversion ended: %s", u.Mode, reasons[u.Reason])
	}
	quorum := &QuorumError{
		Name: f.Name, Need: f.Need, Got: f.Got, Nodes: nodeErrors(f.Nodes), Err: end, unknown: f.Unknown,
	}
	switch f.Kind {
	case engine.Contended:
		e := &AcquireError{
			Name: f.Name, Mode: f.Mode, Attempts: f.Attempts, Waited: f.Waited, Err: end, unknown: f.Unknown,
		}
		if f.Holder != nil {
			h := holder(*f.Holder)
			e.Holder = &h
		}
		return e
	case engine.Conflict:
		quorum.cause = ErrConflict
		return quorum
	case engine.Short:
		quorum.cause = ErrReplicas
		return quorum
	case engine.Absent:
		return &LostError{Name: f.Name, Reason: Taken}
	case engine.Rival:
		return fmt.Errorf("%w: another reader of lock %q is upgrading already", ErrUpgrade, f.Name)
	case engine.OnlyReads:
		return fmt.Errorf("%w: lock %q is held for reading by the same owner", ErrUpgrade, f.Name)
	case engine.Closed:
		return fmt.Errorf("%w: lock %q", ErrClosed, f.Name)
	case engine.InvalidMasters:
		return &OptionError{Option: "masters", Value: f.Need*2 - 1, Rule: f.Err.Error()}
	default:
		return quorum
	}
}

// releaseError separates a release that has no answer and continues from a release that the masters refuse for good.
// In both cases the lock is free by the TTL at the latest. In the second case no further release is sent.
func releaseError(u *engine.Unconfirmed) error {
	quorum := &QuorumError{Name: u.Name, Need: u.Need, Got: u.Got, Nodes: nodeErrors(u.Nodes)}
	switch {
	case u.Conflict:
		quorum.cause = ErrConflict
	case u.Refused:
		quorum.Err = errRefused
	default:
		quorum.Err, quorum.unknown = errPending, true
	}
	return quorum
}

// errUnrenewed describes the state after a renewal that is not confirmed.
var errUnrenewed = errors.New("renewal not confirmed; the lease is valid until its deadline")

// renewError separates a renewal that too few masters have confirmed from a renewal that the caller did not wait for.
func renewError(u *engine.Unrenewed) error {
	if u.Err != nil {
		return fmt.Errorf("rwlock: lock %q: renewal not confirmed: %w", u.Name, u.Err)
	}
	quorum := &QuorumError{
		Name: u.Name, Need: u.Need, Got: u.Got, Nodes: nodeErrors(u.Nodes), Err: errUnrenewed, unknown: u.Unknown,
	}
	if u.Kind == engine.Short {
		quorum.cause = ErrReplicas
	}
	return quorum
}

// nodeErrors returns each master's own cause, which a caller finds with errors.As.
func nodeErrors(nodes []engine.NodeFailure) []NodeError {
	all := make([]NodeError, 0, len(nodes))
	for _, n := range nodes {
		all = append(all, NodeError{Index: n.Index, Addr: n.Addr, Err: nodeCause(n.Err)})
	}
	return all
}

func asErrors(nodes []NodeError) (all []error) {
	for i := range nodes {
		all = append(all, &nodes[i])
	}
	return all
}

// nodeCause converts the engine's causes of a master's failure into causes of this package.
func nodeCause(err error) error {
	switch e := err.(type) {
	case *engine.NoReply:
		return &NoReplyError{After: e.After}
	case *engine.AskedLate:
		return fmt.Errorf("%w; this process sent the request %v late", nodeCause(e.Silence), e.By.Round(time.Millisecond))
	case *engine.NotSent:
		if e.Final {
			return nodeCause(e.Cause)
		}
		return fmt.Errorf("not retried yet: %w", nodeCause(e.Cause))
	case *engine.Unreplicated:
		return &ReplicasError{Need: e.Need, Got: e.Got, After: e.After, Err: e.Err}
	case *engine.Abstaining:
		return &AbstainError{For: e.For, Err: e.Err}
	}
	return err
}
