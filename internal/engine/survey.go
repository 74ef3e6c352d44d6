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
//
// The danger is a master that has forgotten its leases and is taken for a new one, for it would vote at once (case
// no-abstention). So a master without a marker is new only where no master has one and all of them answer. Whatever
// else is missing a marker has lost it, and abstains for the quarantine. That costs a first start with a server down
// two seconds or a TTL; the other mistake would cost exclusion.
func (s *survey) take(ctx context.Context) (replies []markerReply, changed bool, err error) {
	if len(s.e.masters) == 1 {
		replies = s.visit(ctx, all(1, markerRequest{purpose: "single"}))
		return replies, false, s.of.validate(replies)
	}
	requests := all(len(s.e.masters), markerRequest{purpose: "look"})
	for look := 1; ; look++ {
		replies = s.revisit(ctx, requests, replies)
		s.reconcile(replies)
		if err := s.of.validate(replies); err != nil {
			return replies, false, err
		}
		answered, marked := 0, 0
		for i, c := range replies {
			if c.err == nil {
				answered++
			} else {
				requests[i] = nil // looked at again in the next survey
			}
			if c.set != "" {
				marked++
			}
		}
		switch {
		case marked == answered:
			// Every master that answers has a marker: the ordinary case, also where some do not answer.
			return replies, false, nil
		case answered == len(replies) && marked == 0:
			// All answer and none has a marker. Only then is it a first start, at which nobody can have lost anything.
			return s.found(ctx, replies, "birth")
		case look == looks && marked == 0:
			// Some do not answer, so these may have been members before and have lost their data: they abstain first.
			return s.found(ctx, replies, "return")
		case look == looks:
			return s.readmit(ctx, replies)
		}
		if !pause(ctx) {
			return replies, false, nil
		}
	}
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
func (s *survey) found(ctx context.Context, replies []markerReply, purpose string) ([]markerReply, bool, error) {
	first := -1
	for i, c := range replies {
		if c.err == nil && (first < 0 || c.run < replies[first].run) {
			first = i
		}
	}
	if first < 0 {
		return replies, false, nil
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
		return replies, false, nil
	}
	return s.give(ctx, replies, founder, purpose)
}

// reconcile settles which set counts where two processes have founded one over the same masters, each without seeing
// what the other did: that of most masters, and of two the one with the smaller id. The others are taken for masters
// without a marker, and so abstain before they vote for it.
func (s *survey) reconcile(replies []markerReply) {
	members := make(map[string]int)
	best := ""
	for _, c := range replies {
		if c.set == "" || !s.of.sameMasters(c.seats) {
			continue
		}
		members[c.set]++
		if n := members[c.set]; best == "" || n > members[best] || n == members[best] && c.set < best {
			best = c.set
		}
	}
	for i := range replies {
		if c := &replies[i]; c.set != "" && c.set != best && s.of.sameMasters(c.seats) {
			c.rival, c.set, c.seat = c.set, "", ""
		}
	}
}

// readmit gives a marker to masters that have lost theirs. The next client to come finds it there, and need not wonder.
// What is not where the set's founder saw a master is another server, which must not be counted on in its place.
func (s *survey) readmit(ctx context.Context, replies []markerReply) ([]markerReply, bool, error) {
	i := slices.IndexFunc(replies, func(c markerReply) bool { return c.set != "" })
	return s.give(ctx, replies, replies[i], "return")
}

// give makes the masters without markers members of a set, and returns what all show then.
func (s *survey) give(
	ctx context.Context, replies []markerReply, member markerReply, purpose string,
) ([]markerReply, bool, error) {
	seats := strings.Fields(member.seats)
	taken := make([]bool, len(seats))
	for _, c := range replies {
		if n, err := strconv.Atoi(c.seat); err == nil && n < len(taken) {
			taken[n] = true
		}
	}
	requests := make([]*markerRequest, len(replies))
	for i, c := range replies {
		switch {
		case c.err != nil:
			continue
		case c.set != "":
			requests[i] = &markerRequest{purpose: "look"}
			continue
		}
		seat := s.seatOf(i, seats, taken)
		if seat < 0 {
			return replies, false, s.of.refusedMember(i, seats)
		}
		taken[seat] = true
		requests[i] = &markerRequest{
			purpose: purpose, set: member.set, seat: strconv.Itoa(seat), seats: member.seats, instead: c.rival,
			unmarked: c.micros,
		}
	}
	now := s.revisit(ctx, requests, replies)
	s.reconcile(now)
	return now, true, s.of.validate(now)
}

// revisit is visit for those that are asked; the others show what they showed before.
func (s *survey) revisit(ctx context.Context, requests []*markerRequest, before []markerReply) []markerReply {
	now := s.visit(ctx, requests)
	for i := range before {
		if requests[i] == nil {
			now[i] = before[i]
		}
	}
	return now
}

// seatOf returns the seat of master i among those that are not taken: the one that it was seen on before, or one of its
// address; -1 if it has none.
func (s *survey) seatOf(i int, seats []string, taken []bool) int {
	if before, err := strconv.Atoi(s.of.seatBefore(i)); err == nil && before < len(taken) && !taken[before] {
		return before
	}
	addr := s.e.masters[i].Addr()
	if i < len(seats) && seats[i] == addr && !taken[i] {
		return i
	}
	for seat := range seats {
		if seats[seat] == addr && !taken[seat] {
			return seat
		}
	}
	return -1
}
