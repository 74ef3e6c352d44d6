package rwlock

import (
	"fmt"
	"strings"
	"time"
)

// QuorumError is a call that fewer masters carried out than a quorum needs. Nothing is known of the lock's holders
// then. It matches ErrNoQuorum; ErrConflict where no quorum can come about since masters hold something else under a
// key of the lock, be it one beside others that refuse; ErrReplicas where they have granted it and too few replicas
// have confirmed that.
type QuorumError struct {
	Name      string
	Need, Got int         // masters; one Redis is a quorum of one
	Nodes     []NodeError // those that failed, each with its own cause
	Err       error       // what ended the waiting, or becomes of a release or a renewal; or nil

	cause   error // ErrConflict or ErrReplicas; nil for ErrNoQuorum
	unknown bool  // see Indeterminate
}

// Error names the lock, what was missing, and each master that failed with its own cause.
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

// Unwrap returns the masters' causes and what ended the waiting.
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
	Err   error // the server's refusal, the failure of the link, *NoReplyError, *AbstainError or *ReplicasError
}

// Error names the master by its address, and the cause.
func (e *NodeError) Error() string { return fmt.Sprintf("%s: %v", e.Addr, e.Err) }

// Unwrap returns the cause.
func (e *NodeError) Unwrap() error { return e.Err }

// NoReplyError is the cause of a master that did not answer within the time that one master is given: the node timeout,
// for a release the release timeout, or what ctx left. It never matches the end of a context.
type NoReplyError struct{ After time.Duration }

// Error says how long the master was given.
func (e *NoReplyError) Error() string {
	return "no reply in " + e.After.Round(time.Millisecond).String()
}

// ReplicasError is the cause of a master that has granted a lock, or renewed a lease, and whose replicas have not
// confirmed it in time.
type ReplicasError struct {
	Need, Got int           // replicas
	After     time.Duration // how long they were given
	Err       error         // why the master could not tell, or nil
}

// Error says how many were too few, or why that is not known.
func (e *ReplicasError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("not known whether %d replicas have it: %v", e.Need, e.Err)
	}
	return fmt.Sprintf("%d of %d replicas confirmed it in %v", e.Got, e.Need, e.After)
}

// Is matches ErrReplicas.
func (e *ReplicasError) Is(target error) bool { return target == ErrReplicas }

// Unwrap returns why the master could not tell.
func (e *ReplicasError) Unwrap() error { return e.Err }

// AbstainError is the cause of a master that answered but has no vote: it may have lost leases that still live. For is
// how long that lasts; 0 is not known, for a master that has never voted. Err is why, where time does not end it: the
// master is not in order, for one a replica, or a server that the others do not know.
type AbstainError struct {
	For time.Duration
	Err error
}

// Unwrap returns Err.
func (e *AbstainError) Unwrap() error { return e.Err }

// Error says for how long, or why, where that is known.
func (e *AbstainError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("has no vote: it %v", e.Err)
	}
	if e.For == 0 {
		return "abstains until this client has read whether it may have lost leases that still live"
	}
	return fmt.Sprintf("abstains for another %v: it may have lost leases that still live", e.For)
}
