package engine

import (
	"fmt"

	"github.com/seed74116694/fencelock/internal/transport"
)

// Unrenewed is a renewal on demand that no quorum has confirmed. The lease stands until its deadline, and a request
// without an answer may still extend it.
type Unrenewed struct {
	Kind      Kind // NoQuorum or Short; Conflict is a loss
	Name      string
	Need, Got int           // masters needed, and masters that confirmed
	Nodes     []NodeFailure // masters that did not confirm
	Unknown   bool          // a request has no answer
	Err       error         // the end of the context that ended the wait, or nil; the fields above are unknown then
}

func (u *Unrenewed) Error() string { return fmt.Sprintf("renewal of %q not confirmed", u.Name) }

func (u *Unrenewed) Unwrap() error { return u.Err }

// unconfirmed describes a round that has failed, under mu. A master that has granted the hold since the round began was
// not asked in the round, and did not confirm.
func (n *renewal) unconfirmed(l *Lease, r *round) *Unrenewed {
	causes, _ := n.failure.(NodeFailures)
	asked := l.e.drift.Trusted(r.sent, l.terms.TTL)
	u := &Unrenewed{Name: l.name, Need: l.e.quorum(), Nodes: causes}
	u.Kind, _ = l.e.refusal(causes)
	for i := range l.e.masters {
		vote := l.ballot.Vote(i)
		if _, failed := causes.find(i); !failed && vote.Counts() && vote.Until.Mono >= asked.Mono {
			u.Got++
		}
	}
	for _, cause := range causes {
		_, short := unreplicated(cause.Err)
		u.Unknown = u.Unknown || !short && !transport.DidNotRun(cause.Err)
	}
	return u
}
