package rwlock

import (
	"errors"
	"fmt"

	"github.com/seed74116694/fencelock/internal/engine"
	"github.com/seed74116694/fencelock/internal/errs"
)

// convertError converts the engine's errors into errors of this package. No other function does. The engine's errors
// describe the event; the errors of this package describe what it means to the caller: the holder of the lock, or the
// masters that did not answer. Any other error is returned unchanged.
func convertError(err error) error {
	switch e := err.(type) {
	case *engine.Error:
		return callError(e)
	case *engine.Loss:
		return &LostError{
			Name: e.Name, Token: e.Token, Reason: Reason(e.Reason), Limit: e.Limit, Err: convertError(e.Cause()),
			handOff: e.HandOff,
		}
	case engine.NodeFailures:
		return errs.Join(asErrors(nodeErrors(e))...)
	case *engine.NodeFailure:
		return &NodeError{Index: e.Index, Addr: e.Addr, Err: convertError(e.Err)}
	case *engine.NoReply:
		return (*NoReplyError)(e)
	case *engine.ProcessLate:
		return fmt.Errorf("%w; %s", convertError(e.Silence), e.Lateness())
	case *engine.NotSent:
		if e.Final {
			return convertError(e.Cause)
		}
		return fmt.Errorf("not retried yet: %w", convertError(e.Cause))
	case *engine.Advised:
		return &engine.Advised{Refusal: convertError(e.Refusal), Advice: e.Advice}
	case *engine.Unreplicated:
		return &ReplicasError{Need: e.Need, Got: e.Got, After: e.After, Err: e.Err}
	case *engine.Breaker:
		return &BrokenError{By: e.Who, Why: e.Why}
	case *engine.Abstaining:
		return (*AbstainError)(e)
	}
	if errors.Is(err, engine.ErrClosed) {
		return ErrClosed
	}
	return err
}

// callError converts the error of an acquisition, a renewal or a release. Each kind matches one sentinel error. A held
// lock is no fault, and the caller tries again later. Masters that do not answer are a case for their operator.
func callError(e *engine.Error) error {
	switch e.Kind {
	case engine.Contended:
		return acquireError(e)
	case engine.Undecided:
		return fmt.Errorf("rwlock: lock %q: renewal not confirmed: %w", e.Name, e.Err)
	case engine.Absent:
		return &LostError{Name: e.Name, Token: e.Claimed, Reason: ReasonGone}
	case engine.Rival:
		return fmt.Errorf("%w: another reader of lock %q is upgrading already", ErrUpgrade, e.Name)
	case engine.OnlyReads:
		return fmt.Errorf("%w: lock %q is held for reading by the same owner", ErrUpgrade, e.Name)
	case engine.Gone:
		if by, broken := e.Err.(*engine.Breaker); broken {
			return &TicketError{Name: e.Name, Reason: "its hold was broken", Err: convertError(by)}
		}
		return &TicketError{Name: e.Name, Reason: e.Err.Error()}
	case engine.Closed:
		return fmt.Errorf("%w: lock %q", ErrClosed, e.Name)
	case engine.InvalidMasters:
		return &OptionError{Option: "masters", Value: e.Need*2 - 1, Rule: e.Err.Error()}
	default:
		return quorumError(e)
	}
}

func acquireError(e *engine.Error) error {
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
func quorumError(e *engine.Error) error {
	quorum := &QuorumError{
		Name: e.Name, Need: e.Need, Got: e.Got, Nodes: nodeErrors(e.Nodes), Err: waitEnd(e.Err), unknown: e.Unknown,
	}
	switch e.Kind {
	case engine.Conflict:
		quorum.cause = ErrConflict
	case engine.Short:
		quorum.cause = ErrReplicas
	}
	switch {
	case e.Op == engine.OpRenew:
		quorum.Err = errUnrenewed
	case e.Op == engine.OpAcquire || e.Op == engine.OpBreak || e.Op == engine.OpAdopt || e.Kind == engine.Conflict:
	case e.Unknown:
		quorum.Err = errPending
	default:
		quorum.Err = errRefused
	}
	return quorum
}

// nodeErrors returns each master's own cause, which a caller finds with errors.As.
func nodeErrors(nodes []engine.NodeFailure) []NodeError {
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
