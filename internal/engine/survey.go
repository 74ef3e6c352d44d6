package engine

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// looks is how many times a set with some markers missing is looked at before it is taken for one that lost data:
// another process may be giving them out at this moment.
const looks = 3

// survey is one look at all masters. It belongs to its membership, which takes at most one at a time; only done and err
// are read by others, err after done is closed.
type survey struct {
	e    *Engine
	of   *membership
	done chan struct{}
	err  error // what keeps this set from being used at all; set before done is closed
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

// take returns what every master showed, and whether any was given a marker.
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

// complete looks at the masters, and gives a marker to those that are due one.
//
// The danger is a master that has forgotten its leases and is taken for a new one, for it would vote at once (case
// no-abstention). So a master without a marker is new only where no master has one and all of them answer. Whatever
// else is missing a marker has lost it, and abstains for the quarantine. That costs a first start with a server down
// two seconds or a TTL; the other mistake would cost exclusion: a quorum without markers may be one master that was
// emptied long ago, and has been away since, and one that was emptied now, while a lease stands on what is absent.
func (s *survey) complete(ctx context.Context) (replies []markerReply, changed bool) {
	requests := all(len(s.e.masters), markerRequest{purpose: "look"})
	for look := 1; ; look++ {
		replies = s.revisit(ctx, requests, replies)
		answered, marked, unmarked := 0, 0, 0
		for i, c := range replies {
			switch {
			case c.err != nil:
				requests[i] = nil // looked at again in the next survey
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
			// Every master that is fit has a marker: the ordinary case, also where some do not answer.
			return replies, false
		case answered == len(replies) && marked == 0:
			// All answer and none has a marker. Only then is it a first start, at which nobody can have lost anything.
			return s.found(ctx, replies, "birth")
		case look == looks && marked == 0 && answered >= s.e.quorum():
			// Some do not answer, so these may have been members before and have lost their data: they abstain first.
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

// knownTerms are the last terms of the seats, as far as the members tell and this client has seen.
func (s *survey) knownTerms(replies []markerReply) (known terms) {
	for _, c := range replies {
		if c.isMember() {
			known.learn(s.of.termsOf(c.set))
			known.learn(c.terms)
		}
	}
	return known
}

// update has masters begin the terms that are due, and tells all of the terms that they do not know of. The second
// round is for what the first has begun.
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

// pause waits a moment, and reports false if ctx has ended. Its length differs from process to process, so that two of
// them do not found a set at the same moment time and again.
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

// found makes a set of masters without markers. A birth is one at its first start, whose masters vote at once; after a
// return they abstain first. marker.lua itself makes a return of a birth that comes late, since the client may have
// stood still between seeing no marker and giving one, and the others have begun to lock meanwhile. Of several
// processes that do so at once, the first to reach the master with the smallest run id names the set; the others take
// its name from there.
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
	// All processes ask the same master first, so one of them is the first there; it names the set for all.
	founder := s.visit(ctx, requests)[first]
	if founder.err != nil || founder.set == "" {
		return replies, false
	}
	replies[first] = founder
	s.of.judge(replies) // by the seats that the founder has named
	return s.give(ctx, replies, founder, purpose)
}

// readmit gives a marker to masters that have lost theirs. The next client to come finds it there, and need not wonder.
// What is not where the set's founder saw a master is another server, which must not be counted on in its place.
func (s *survey) readmit(ctx context.Context, replies []markerReply) ([]markerReply, bool) {
	i := slices.IndexFunc(replies, markerReply.isMember)
	return s.give(ctx, replies, replies[i], "return")
}

// give makes the masters without markers members of a set, and returns what all show then.
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

// revisit is visit for those that are asked; the others show what they showed before. All are judged by what is known
// then.
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
