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

// noteFailure keeps why a master did not renew: a cause of a round that stalls, and of a loss. An answer may come when
// its round is over; the reason is still the best there is. Errors are given out, so what is kept is never changed.
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

// noteAnswer forgets why a master did not renew, since it does again.
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

// AskedLate is the silence of a master that this process asked so late that little time was left to answer.
type AskedLate struct {
	By      time.Duration
	Silence *NoReply
}

func (e *AskedLate) Error() string {
	return fmt.Sprintf("%v; this process asked %v late", e.Silence, e.By.Round(time.Millisecond))
}

func (e *AskedLate) Unwrap() error { return e.Silence }

// silence is the cause of a master that owes the round an answer.
func (r *round) silence(now clock.Instant) error {
	silence := &NoReply{After: now.Mono - r.sent.Mono}
	if r.late > silence.After {
		return &AskedLate{By: r.late, Silence: silence}
	}
	return silence
}

// noteSilence names the masters that owe the round an answer. What one said before tells more than its silence.
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

// errNotThere is the cause of a master that has answered, and has nothing to renew: it has lost the hold, or never had
// it.
var errNotThere = errors.New("does not have the hold")

// noteAbsence names the masters that do not stand by the lease. They do not fail, but without them it takes fewer that
// do to lose it.
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

// tell logs which servers did not renew the lease, under its mutex: one line for each at growing intervals, however
// many leases it has. The loss of a lease is told for each.
func (n *renewal) tell(l *Lease) {
	causes, _ := n.failure.(NodeFailures)
	for _, cause := range causes {
		server := l.e.masters[cause.Index].At(l.key.lock())
		pause, due := l.e.unrenewed.due(server, l.e.clock.Now().Mono)
		if !due {
			continue
		}
		l.e.observers.warn("a server does not renew leases, trying again until their deadlines",
			slog.String("master", server.Addr()), slog.Int("leases", l.e.registry.countOn(server, l.e.clock.Now())),
			slog.String("lock", l.name), slog.Duration("next_report", pause), slog.Any("error", cause.Err))
	}
}

// renews notes that the server renews leases, and logs it where it has not done so before.
func (e *Engine) renews(server *transport.Node, now clock.Instant) {
	if after, ended := e.unrenewed.over(server, now.Mono); ended {
		e.observers.info("a server renews leases again",
			slog.String("master", server.Addr()), slog.Duration("after", after))
	}
}
