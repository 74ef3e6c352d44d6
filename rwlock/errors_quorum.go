package rwlock

import (
	"fmt"
	"strings"
	"time"
)

// QuorumError reports a call that fewer masters carried out than a quorum needs. The holders of the lock are unknown
// then. It matches ErrNoQuorum, with two exceptions. It matches ErrConflict if no quorum is possible because masters
// hold something else under a key of the lock, even if only one master does and the rest refuse for another reason. It
// matches ErrReplicas if masters have granted the lock and too few replicas have confirmed the grant.
type QuorumError struct {
	Name      string
	Need, Got int         // masters; one Redis is a quorum of one
	Nodes     []NodeError // the masters that failed, each with its own cause
	Err       error       // what ended the wait, or what happens to a release or a renewal; or nil

	cause   error // ErrConflict or ErrReplicas; nil for ErrNoQuorum
	unknown bool  // see Indeterminate
}

// Error names the lock, what was missing, and each failed master with its own cause.
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
		b.WriteString("too few replicas have it")
	case e.Need == 1:
		b.WriteString("no usable answer from Redis")
	default:
		fmt.Fprintf(&b, "no quorum: it needs %d masters and had %d", e.Need, e.Got)
	}
	for i := range e.Nodes {
		fmt.Fprintf(&b, "; %v", &e.Nodes[i])
	}
	if e.Err != nil {
		fmt.Fprintf(&b, "; %v", e.Err)
	}
	return b.String()
}

// Is matches one of ErrNoQuorum, ErrConflict and ErrReplicas.
func (e *QuorumError) Is(target error) bool {
	if e.cause != nil {
		return target == e.cause
	}
	return target == ErrNoQuorum
}

// Unwrap returns the masters' causes and what ended the wait.
func (e *QuorumError) Unwrap() []error {
	all := asErrors(e.Nodes)
	if e.Err != nil {
		all = append(all, e.Err)
	}
	return all
}

// NodeError is one master's failure.
type NodeError struct {
	Index int // in the order given to New
	Addr  string
	Err   error // the server's refusal, a failure of the link, *NoReplyError, *AbstainError or *ReplicasError
}

// Error names the master by its address, and the cause.
func (e *NodeError) Error() string { return fmt.Sprintf("%s: %v", e.Addr, e.Err) }

// Unwrap returns the cause.
func (e *NodeError) Unwrap() error { return e.Err }

// NoReplyError is the cause of a master that did not answer within its time: the node timeout, for a release the
// release timeout, or what ctx left. It never matches the end of a context.
type NoReplyError struct{ After time.Duration }

// Error names the time that the master had.
func (e *NoReplyError) Error() string {
	return "no reply in " + e.After.Round(time.Millisecond).String()
}

// ReplicasError is the cause of a master that has granted a lock or renewed a lease, and whose replicas did not confirm
// this in time.
type ReplicasError struct {
	Need, Got int           // replicas
	After     time.Duration // the time that they had
	Err       error         // why the number is unknown, or nil
}

// Error names the number of replicas that confirmed, or why it is unknown.
func (e *ReplicasError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("not known whether %d replicas have it: %v", e.Need, e.Err)
	}
	return fmt.Sprintf("%d of %d replicas confirmed it in %v", e.Got, e.Need, e.After)
}

// Is matches ErrReplicas.
func (e *ReplicasError) Is(target error) bool { return target == ErrReplicas }

// Unwrap returns why the number is unknown.
func (e *ReplicasError) Unwrap() error { return e.Err }

// AbstainError is the cause of a master that answered but has no vote, because it may have lost leases that are still
// valid. For is the time until it votes again; 0 means unknown, for a master that has never voted. Err is the reason if
// time alone does not end this: the master is not in order, for example a replica, or a server that the other masters
// do not know.
type AbstainError struct {
	For time.Duration
	Err error
}

// Unwrap returns Err.
func (e *AbstainError) Unwrap() error { return e.Err }

// Error names the time or the reason, if known.
func (e *AbstainError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("has no vote: it %v", e.Err)
	}
	if e.For == 0 {
		return "abstains until this client has read whether it may have lost leases that still live"
	}
	return fmt.Sprintf("abstains for another %v: it may have lost leases that still live", e.For)
}
