package rwlock

import (
	"errors"
	"fmt"

	"github.com/seed74116694/fencelock/internal/engine"
)

// outcome turns the engine's errors into this package's. It is the only place that does.
func outcome(err error) error {
	switch e := err.(type) {
	case nil:
		return nil
	case *engine.Failure:
		return acquireOutcome(e)
	case *engine.Loss:
		return &LostError{Name: e.Name, Token: e.Token, Reason: reasons[e.Reason], Err: outcome(e.Err)}
	case *engine.Unconfirmed:
		return &QuorumError{
			Name: e.Name, Need: e.Need, Got: e.Got, Nodes: nodeErrors(e.Nodes), Err: errPending, unknown: true,
		}
	case *engine.NodeFailure:
		return &NodeError{Index: e.Index, Addr: e.Addr, Err: e.Err}
	}
	switch {
	case errors.Is(err, engine.ErrReleased):
		return ErrReleased
	case errors.Is(err, engine.ErrClosed):
		return ErrClosed
	}
	return err
}

// errPending is what a release comes to that is not confirmed.
var errPending = errors.New("the release goes on in the background until the hold must have expired")

var reasons = map[engine.Reason]Reason{
	engine.Expired: Expired, engine.Taken: Taken, engine.Unreachable: NoQuorum,
	engine.Paused: Paused, engine.MaxHold: MaxHold,
}

func acquireOutcome(f *engine.Failure) error {
	quorum := &QuorumError{
		Name: f.Name, Need: f.Need, Got: f.Got, Nodes: nodeErrors(f.Nodes), Err: f.Err, unknown: f.Unknown,
	}
	switch f.Kind {
	case engine.Contended:
		return &AcquireError{
			Name: f.Name, Mode: f.Mode, Attempts: f.Attempts, Waited: f.Waited, Holder: (*Holder)(f.Holder), Err: f.Err,
			unknown: f.Unknown,
		}
	case engine.Conflict:
		return fmt.Errorf("%w: %w", ErrConflict, quorum)
	case engine.Absent:
		return &LostError{Name: f.Name, Reason: Taken}
	case engine.Upgrade:
		return fmt.Errorf("%w: lock %q is held for reading by the same owner", ErrUpgrade, f.Name)
	case engine.Closed:
		return fmt.Errorf("%w: lock %q", ErrClosed, f.Name)
	case engine.Silent:
		return fmt.Errorf("%w: lock %q: %w", ErrMessages, f.Name, f.Err)
	case engine.Unusable:
		return &OptionError{Option: "masters", Value: f.Need*2 - 1, Rule: f.Err.Error()}
	default:
		return quorum
	}
}

func nodeErrors(nodes []engine.NodeFailure) []NodeError {
	all := make([]NodeError, 0, len(nodes))
	for _, n := range nodes {
		all = append(all, NodeError{Index: n.Index, Addr: n.Addr, Err: n.Err})
	}
	return all
}
