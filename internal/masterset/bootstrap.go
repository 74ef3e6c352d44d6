package masterset

import (
	"context"
	"slices"
	"strings"
)

// bootstrap is one pass over the masters: it reads their markers, gives markers to masters that need one, and has
// masters begin the terms that are due. Its functions do what leaves the process.
type bootstrap struct {
	view
	ask   func(ctx context.Context, requests []*request) []reply // by master; a nil request skips its master
	pause func(ctx context.Context) bool                         // waits before another look; false if ctx has ended
	newID func() string                                          // of a set

	found    []finding // by master
	assigned bool      // a master was given a marker
}

// run makes the pass. It returns an error if the set must not be used, whatever its masters answer later.
func (b *bootstrap) run(ctx context.Context) error {
	if len(b.masters) == 1 {
		r := b.ask(ctx, []*request{{purpose: forSingle}})[0]
		b.found = []finding{b.judgeServer(r)}
		return b.validateAlone(r)
	}
	b.completeSet(ctx)
	err := b.refusal(b.found)
	if err == nil {
		b.updateTerms(ctx)
	}
	return err
}

// completeSet looks at the masters until it can conclude something, and gives markers to masters that need one.
func (b *bootstrap) completeSet(ctx context.Context) {
	requests := make([]*request, len(b.masters))
	for i := range requests {
		requests[i] = &request{purpose: look}
	}
	for n := 1; ; n++ {
		b.poll(ctx, requests)
		for i, f := range b.found {
			if f.state == silent {
				requests[i] = nil // asked again in the next bootstrap
			}
		}
		switch b.conclude(n, b.found) {
		case leave:
			return
		case foundFirst:
			b.foundSet(ctx, create)
			return
		case foundAgain:
			b.foundSet(ctx, rejoin)
			return
		case readmit:
			i := slices.IndexFunc(b.found, finding.marked)
			b.assignMarkers(ctx, b.found[i].marker, rejoin)
			return
		case lookAgain:
			if !b.pause(ctx) {
				return
			}
		}
	}
}

// step is what follows from a look at the masters.
type step uint8

const (
	leave      step = iota // the markers as they are
	lookAgain              // after a pause
	foundFirst             // found a set whose masters vote at once
	foundAgain             // found a set whose masters abstain first
	readmit                // give the unmarked masters the markers of the set; they abstain first
)

// looks is how many times a bootstrap looks at a set in which some markers are missing before it concludes that the set
// has lost data. Another process may be giving out the markers at this moment.
const looks = 3

// conclude returns what follows from look number n.
//
// The danger is a master that has forgotten its leases and is taken for a new one, because it would vote at once (case
// no-abstention). A master without a marker is therefore new only if no master has a marker and all masters answer. In
// every other case it counts as a master that has lost its marker, and abstains for the quarantine. This costs a first
// start with a server down two seconds or a TTL. The opposite mistake would break exclusion: a quorum without markers
// may consist of a master that was emptied long ago and has been away since, and a master that was emptied now, while a
// lease stands on a master that is absent.
func (v *view) conclude(n int, all []finding) step {
	answered, marked, noMarker, fit := 0, 0, 0, true
	for _, f := range all {
		if f.state != silent {
			answered++
		}
		if f.state == unfit {
			fit = false
		}
		if f.marked() {
			marked++
		}
		if f.state == unmarked {
			noMarker++
		}
	}
	switch {
	case noMarker == 0 || v.refusal(all) != nil:
		return leave // the ordinary case: every fit master that answers has a marker
	case answered == len(all) && marked == 0:
		return foundFirst // only this is a first start, at which no data can have been lost
	case n < looks:
		return lookAgain
	case marked > 0:
		return readmit
	case answered >= v.quorum() && fit:
		return foundAgain // the silent masters may know that these masters were members before and have lost their data
	default:
		return leave // too few to be a set, or not to be founded while one is not fit
	}
}

// poll sends the requests, and judges the last replies of all masters by what is known then.
func (b *bootstrap) poll(ctx context.Context, requests []*request) {
	replies := b.ask(ctx, requests)
	for i, f := range b.found {
		if requests[i] == nil {
			replies[i] = f.reply
		}
	}
	b.found = b.judge(replies)
}

// foundSet makes a set of masters without markers. At the first start of a set its masters vote at once.
// When they rejoin they abstain first. marker.lua itself treats a late create as a rejoin, because the client may have
// stood still between seeing no marker and giving one, while other clients began to lock. If several processes found a
// set at once, the first to reach the master with the smallest run id names it, and every process takes the name from
// that master.
func (b *bootstrap) foundSet(ctx context.Context, how purpose) {
	first := -1
	for i, f := range b.found {
		if f.state != silent && (first < 0 || f.run < b.found[first].run) {
			first = i
		}
	}
	addrs := make([]string, len(b.masters))
	for i, m := range b.masters {
		addrs[i] = m.Addr()
	}
	requests := make([]*request, len(b.masters))
	requests[first] = &request{
		purpose: how, set: b.newID(), seat: first, seats: strings.Join(addrs, " "), unmarked: b.found[first].micros,
	}
	founder := b.ask(ctx, requests)[first]
	if founder.err != nil || founder.marker.set == "" {
		return
	}
	replies := make([]reply, len(b.found))
	for i, f := range b.found {
		replies[i] = f.reply
	}
	replies[first] = founder
	b.found = b.judge(replies) // by the seats in the founder's marker
	if b.found[first].marked() {
		b.assignMarkers(ctx, founder.marker, how)
	}
}

// assignMarkers makes the masters without markers members of the set. The next client finds the markers there. A server
// that has no seat (see freeSeat) is another server, and must not count in place of the member.
func (b *bootstrap) assignMarkers(ctx context.Context, of marker, how purpose) {
	known := b.knownTerms()
	requests := make([]*request, len(b.masters))
	for i, f := range b.found {
		switch {
		case f.marked():
			requests[i] = &request{purpose: look}
		case f.state == unmarked:
			requests[i] = &request{
				purpose: how, set: of.set, seat: f.seat, seats: of.seats, terms: known,
				instead: f.rival, unmarked: f.micros,
			}
		}
	}
	b.poll(ctx, requests)
	b.assigned = true
}

// knownTerms returns the last terms of the seats that the members or this client know.
func (b *bootstrap) knownTerms() (known terms) {
	for _, f := range b.found {
		if f.marked() {
			known.learn(b.termsOf(f.marker.set))
			known.learn(f.marker.terms)
		}
	}
	return known
}

// updateTerms has masters begin the terms that are due, and sends the known terms to all masters that lack them. The
// second round distributes the terms that began in the first.
func (b *bootstrap) updateTerms(ctx context.Context) {
	for range 2 {
		known := b.knownTerms()
		requests, due := make([]*request, len(b.masters)), false
		for i, f := range b.found {
			switch {
			case f.state == replaced:
				requests[i] = &request{purpose: succeed, terms: known}
			case f.inOrder() && (f.marker.terms.misses(known) || f.marker.run == "" && f.run != ""):
				requests[i] = &request{purpose: note, terms: known}
			default:
				continue
			}
			due = true
		}
		if !due {
			return
		}
		b.poll(ctx, requests)
	}
}
