package engine

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/transport"
)

// noteFailure records why a master did not renew, as a cause of a round that stalls, and of a loss. The answer may
// arrive after its round is over; it is still the best reason known. Callers receive these errors, so a recorded slice
// is never modified.
func (n *renewal) noteFailure(failure NodeFailure) {
	known, _ := n.failure.(NodeFailures)
	i, found := known.find(failure.Index)
	if known = slices.Clone(known); found {
		known[i] = failure
	} else {
		known = slices.Insert(known, i, failure)
	}
	n.failure = known
}

// noteAnswer removes the failure of a master that renews again.
func (n *renewal) noteAnswer(master int) {
	known, _ := n.failure.(NodeFailures)
	i, found := known.find(master)
	if !found {
		return
	}
	if n.failure = nil; len(known) > 1 {
		n.failure = slices.Delete(slices.Clone(known), i, i+1)
	}
}

// AskedLate is the silence of a master that this process asked so late that little time was left for an answer.
type AskedLate struct {
	By      time.Duration
	Silence *NoReply
}

func (e *AskedLate) Error() string {
	return fmt.Sprintf("%v; this process asked %v late", e.Silence, e.By.Round(time.Millisecond))
}

func (e *AskedLate) Unwrap() error { return e.Silence }

// silence returns the failure of a master that has not answered the round.
func (r *round) silence(now clock.Instant) error {
	silence := &NoReply{After: now.Mono - r.sent.Mono}
	if r.late > silence.After {
		return &AskedLate{By: r.late, Silence: silence}
	}
	return silence
}

// noteSilence records the masters that have not answered the round. An earlier failure says more than silence, so it
// stays.
func (n *renewal) noteSilence(l *Lease, now clock.Instant) {
	silence := n.round.silence(now)
	for i, m := range l.e.masters {
		known, _ := n.failure.(NodeFailures)
		if _, found := known.find(i); !found && l.ballot.Votes().OwesRenewal(i) {
			n.noteFailure(NodeFailure{Index: i, Addr: m.At(l.key.lock()).Addr(), Err: silence})
		}
	}
	if n.failure == nil {
		n.failure = silence
	}
}

// errNotThere is the failure of a master that has answered, and has nothing to renew: it has lost the hold, or never
// had it.
var errNotThere = errors.New("does not have the hold")

// noteAbsence records the masters that do not stand by the lease. They do not fail, but without them fewer failures are
// enough to lose the lease.
func (n *renewal) noteAbsence(l *Lease) {
	known, _ := n.failure.(NodeFailures)
	for i, m := range l.e.masters {
		vote := l.ballot.Vote(i)
		if _, found := known.find(i); found || vote.Counts() && vote.Token == l.token() {
			continue
		}
		err := vote.Err // why its last request failed
		if err == nil {
			err = errNotThere
		}
		n.noteFailure(NodeFailure{Index: i, Addr: m.At(l.key.lock()).Addr(), Err: err})
	}
}

// tell logs which servers did not renew the lease, under its mutex: one line for each server at growing intervals,
// independent of how many leases it has. The loss of a lease is reported for each lease.
func (n *renewal) tell(l *Lease) {
	causes, _ := n.failure.(NodeFailures)
	for _, cause := range causes {
		server := l.e.masters[cause.Index].At(l.key.lock())
		pause, due := l.e.unrenewed.due(server, l.e.clock.Now().Mono, 0)
		if !due {
			continue
		}
		l.e.observers.warn("a server does not renew leases, trying again until their deadlines",
			slog.String("master", server.Addr()), slog.Int("leases", l.e.registry.countOn(server, l.e.clock.Now())),
			slog.String("lock", l.name), slog.Duration("next_report", pause), slog.Any("error", cause.Err))
	}
}

// renews records that the server renews leases, and logs the end of an outage.
func (e *Engine) renews(server *transport.Node, now clock.Instant) {
	if after, ended := e.unrenewed.over(server, now.Mono); ended {
		e.observers.info("a server renews leases again",
			slog.String("master", server.Addr()), slog.Duration("after", after))
	}
}
