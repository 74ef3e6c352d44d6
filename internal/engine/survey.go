package engine

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// looks is how many times a survey looks at a set in which some markers are missing before it concludes that the set
// has lost data. Another process may be giving out the markers at this moment.
const looks = 3

// survey is one look at all masters. Its membership runs at most one survey at a time. Other goroutines read only done
// and err, and err only after done is closed.
type survey struct {
	e    *Engine
	of   *membership
	done chan struct{}
	err  error // the reason that this set must not be used at all; set before done is closed
}

// over reports whether the survey has ended.
func (s *survey) over() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// take returns the reply of every master, and whether any master was given a marker.
func (s *survey) take(ctx context.Context) (replies []markerReply, changed bool, err error) {
	if len(s.e.masters) == 1 {
		replies = s.visit(ctx, all(1, markerRequest{purpose: "single"}))
		return replies, false, s.of.validateAlone(replies[0])
	}
	replies, changed = s.complete(ctx)
	if err = s.of.refuse(replies); err == nil {
		replies = s.update(ctx, replies)
	}
	return replies, changed, err
}

// complete looks at the masters, and gives markers to masters that need one.
//
// The danger is a master that has forgotten its leases and is taken for a new one, because it would vote at once (case
// no-abstention). A master without a marker is therefore new only if no master has a marker and all masters answer. In
// every other case it counts as a master that has lost its marker, and abstains for the quarantine. This costs a first
// start with a server down two seconds or a TTL. The opposite mistake would break exclusion: a quorum without markers
// may consist of a master that was emptied long ago and has been away since, and a master that was emptied now, while a
// lease stands on a master that is absent.
func (s *survey) complete(ctx context.Context) (replies []markerReply, changed bool) {
	requests := all(len(s.e.masters), markerRequest{purpose: "look"})
	for look := 1; ; look++ {
		replies = s.revisit(ctx, requests, replies)
		answered, marked, unmarked := 0, 0, 0
		for i, c := range replies {
			switch {
			case c.err != nil:
				requests[i] = nil // asked again in the next survey
				continue
			case c.unfit != nil:
			case c.set != "":
				marked++
			default:
				unmarked++
			}
			answered++
		}
		switch {
		case unmarked == 0 || s.of.refuse(replies) != nil:
			// Every fit master has a marker. This is the ordinary case, and does not require that all masters answer.
			return replies, false
		case answered == len(replies) && marked == 0:
			// All masters answer and none has a marker. Only this is a first start, at which no data can have been
			// lost.
			return s.found(ctx, replies, "birth")
		case look == looks && marked == 0 && answered >= s.e.quorum():
			// Some masters do not answer, so these masters may have been members before and may have lost their data.
			// They abstain first.
			return s.found(ctx, replies, "return")
		case look == looks && marked == 0:
			return replies, false // too few to be a set
		case look == looks:
			return s.readmit(ctx, replies)
		}
		if !pause(ctx) {
			return replies, false
		}
	}
}

// knownTerms returns the last terms of the seats that the members or this client know.
func (s *survey) knownTerms(replies []markerReply) (known terms) {
	for _, c := range replies {
		if c.isMember() {
			known.learn(s.of.termsOf(c.set))
			known.learn(c.terms)
		}
	}
	return known
}

// update has masters begin the terms that are due, and sends the known terms to all masters that lack them. The second
// round distributes the terms that began in the first.
func (s *survey) update(ctx context.Context, replies []markerReply) []markerReply {
	for range 2 {
		known := s.knownTerms(replies)
		requests, due := make([]*markerRequest, len(replies)), false
		for i, c := range replies {
			request := markerRequest{purpose: "note", terms: known}
			switch {
			case c.succeeds:
				request.purpose = "succeed"
			case !c.inOrder() || !c.terms.misses(known) && (c.known != "" || c.run == ""):
				continue
			}
			requests[i], due = &request, true
		}
		if !due {
			break
		}
		replies = s.revisit(ctx, requests, replies)
	}
	return replies
}

// pause waits a moment, and reports false if ctx has ended. Its length is random, so that two processes do not
// repeatedly found a set at the same moment.
func pause(ctx context.Context) bool {
	timer := time.NewTimer(50*time.Millisecond + rand.N(100*time.Millisecond))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// found makes a set of masters without markers. After a birth, the first start of a set, its masters vote at once.
// After a return they abstain first. marker.lua itself treats a late birth as a return, because the client may have
// stood still between seeing no marker and giving one, while other clients began to lock. If several processes found a
// set at once, the first to reach the master with the smallest run id names it, and every process takes the name from
// that master.
func (s *survey) found(ctx context.Context, replies []markerReply, purpose string) ([]markerReply, bool) {
	first := -1
	for i, c := range replies {
		if c.err == nil && (first < 0 || c.run < replies[first].run) {
			first = i
		}
	}
	seats := make([]string, len(replies))
	for i, m := range s.e.masters {
		seats[i] = m.Addr()
	}
	founding := markerRequest{
		purpose: purpose, set: newULID(s.e.clock.Now().Wall), seat: strconv.Itoa(first), seats: strings.Join(seats, " "),
		unmarked: replies[first].micros,
	}
	requests := make([]*markerRequest, len(replies))
	requests[first] = &founding
	// All processes ask the same master first, so the process that reaches it first names the set for all.
	founder := s.visit(ctx, requests)[first]
	if founder.err != nil || founder.set == "" {
		return replies, false
	}
	replies[first] = founder
	s.of.judge(replies) // by the seats in the founder's marker
	return s.give(ctx, replies, founder, purpose)
}

// readmit gives a marker to masters that have lost theirs. The next client finds it there. A server that has no seat
// (see seatOf) is another server, and must not count in place of the member.
func (s *survey) readmit(ctx context.Context, replies []markerReply) ([]markerReply, bool) {
	i := slices.IndexFunc(replies, markerReply.isMember)
	return s.give(ctx, replies, replies[i], "return")
}

// give makes the masters without markers members of a set, and returns the replies of all masters after that.
func (s *survey) give(
	ctx context.Context, replies []markerReply, member markerReply, purpose string,
) ([]markerReply, bool) {
	known := s.knownTerms(replies)
	requests := make([]*markerRequest, len(replies))
	for i, c := range replies {
		switch {
		case c.err != nil || c.unfit != nil:
		case c.set != "":
			requests[i] = &markerRequest{purpose: "look"}
		default:
			requests[i] = &markerRequest{
				purpose: purpose, set: member.set, seat: c.seat, seats: member.seats, terms: known,
				instead: c.rival, unmarked: c.micros,
			}
		}
	}
	return s.revisit(ctx, requests, replies), true
}

// revisit calls visit for the masters that have a request, and keeps the earlier replies of the remaining masters. It
// judges all replies again by what is known then.
func (s *survey) revisit(ctx context.Context, requests []*markerRequest, before []markerReply) []markerReply {
	now := s.visit(ctx, requests)
	for i := range before {
		if requests[i] == nil {
			now[i] = before[i]
		}
	}
	s.of.judge(now)
	return now
}
