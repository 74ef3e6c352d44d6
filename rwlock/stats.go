package rwlock

import (
	"fmt"
	"strings"
)

// Stats has the counters of a locker since it was made, and its current numbers.
type Stats struct {
	Held          int    // leases held now
	Waiting       int    // acquisitions that wait now
	Unreachable   int    // waiting acquisitions without the answer of a quorum, or refused by a quorum for 1 s
	NoMessages    int    // waiting acquisitions that poll because messages do not arrive: see Trace.NoMessages
	Lingering     int    // leases that an RWMutex keeps without a current user
	Acquired      uint64 // leases granted
	Contended     uint64 // of Acquired: after a wait
	HandedOff     uint64 // of Acquired: by a hand-off from the previous holder
	Adopted       uint64 // of Acquired: by Adopt
	Detached      uint64 // leases that Detach has ended
	Failed        FailedStats
	Lost          LostStats
	Expired       uint64 // leases WithoutRenewal that ended with their TTL, which is no loss
	Unconfirmed   uint64 // releases not confirmed in time, or refused; the former go on in the background
	Renewed       uint64 // renewals confirmed
	RenewFailed   uint64 // renewals not confirmed; each is tried again until the deadline
	EventsDropped uint64 // events not passed to Logger and Trace, because too many were pending
}

// String has what is not zero: "held 3, waiting 1, acquired 120, contended 7, lost 1 (broken 1)". Held and waiting are
// always there.
func (s Stats) String() string {
	text := fmt.Sprintf("held %d, waiting %d", s.Held, s.Waiting)
	add := func(n uint64, what string) {
		if n > 0 {
			text += fmt.Sprintf(", %s %d", what, n)
		}
	}
	add(uint64(s.Unreachable), "unreachable")
	add(uint64(s.NoMessages), "without messages")
	add(uint64(s.Lingering), "lingering")
	add(s.Acquired, "acquired")
	add(s.Contended, "contended")
	add(s.HandedOff, "handed off")
	add(s.Adopted, "adopted")
	add(s.Detached, "detached")
	add(s.Failed.Total(), "failed")
	text += parts(s.Failed)
	add(s.Lost.Total(), "lost")
	text += parts(s.Lost)
	add(s.Expired, "expired")
	add(s.Unconfirmed, "unconfirmed")
	add(s.Renewed, "renewed")
	add(s.RenewFailed, "renewals failed")
	add(s.EventsDropped, "events dropped")
	return text
}

// parts returns what is not zero of counters by reason, in parentheses.
func parts(counts fmt.Stringer) string {
	if text := counts.String(); text != "" {
		return " (" + text + ")"
	}
	return ""
}

// reasons joins the counters that are not zero.
func reasons(names []string, counts ...uint64) string {
	var all []string
	for i, n := range counts {
		if n > 0 {
			all = append(all, fmt.Sprintf("%s %d", names[i], n))
		}
	}
	return strings.Join(all, ", ")
}

// FailedStats counts acquisitions that ended without a lease, by their errors. A LockAll counts for each lock that it
// did not get: the lock that it waited for when another one was lost counts as Contended, while the call returned the
// loss of the other one. Those that Trace has no event for are not counted.
type FailedStats struct {
	Contended uint64 // ErrNotAcquired: another client holds the lock, or ctx ended
	NoQuorum  uint64 // ErrNoQuorum
	Closed    uint64 // ErrClosed

	// ErrUpgrade, ErrReplicas, ErrConflict, ErrLockOrder; masters that cannot be used together; a hold to join is gone;
	// another lock of the same LockAll was lost.
	Refused uint64
}

// Total returns the sum.
func (s FailedStats) Total() uint64 { return s.Contended + s.NoQuorum + s.Closed + s.Refused }

// String has what is not zero.
func (s FailedStats) String() string {
	names := []string{"contended", "no quorum", "closed", "refused"}
	return reasons(names, s.Contended, s.NoQuorum, s.Closed, s.Refused)
}

// LostStats counts leases that were lost, by the reason of the LostError.
type LostStats struct{ Gone, NotRenewed, Paused, MaxHold, Broken uint64 }

// Total returns the sum.
func (s LostStats) Total() uint64 { return s.Gone + s.NotRenewed + s.Paused + s.MaxHold + s.Broken }

// String has what is not zero.
func (s LostStats) String() string {
	names := []string{"gone", "not renewed", "paused", "max hold", "broken"}
	return reasons(names, s.Gone, s.NotRenewed, s.Paused, s.MaxHold, s.Broken)
}
