package masterset

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed74116694/fencelock/internal/errs"
	"github.com/seed74116694/fencelock/internal/transport"
)

// bootstrap is one pass over the masters: it reads their markers, gives markers to masters that need one, and has
// masters begin the terms that are due. Its functions do what leaves the process.
type bootstrap struct {
	view
	ask   func(ctx context.Context, requests []*request) []reply // by master; a nil request skips its master
	newID func() string                                          // of a set

	found    []finding // by master
	founder  int       // the master that names a new set
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

// validateAlone returns an error for a server that must not be used as a single master.
func (v *view) validateAlone(r reply) error {
	where := fmt.Sprintf("master 0 (%s)", v.masters[0].Addr())
	switch {
	case r.err == nil && r.marker.layout != "" && r.marker.layout != layout:
		return fmt.Errorf("%w: %s %w", ErrUnusable, where, otherLayout(r))
	case r.cluster:
		return fmt.Errorf("%w: %s: %s", ErrUnusable, where, transport.ClusterAdvice)
	case r.marker.set != "":
		return fmt.Errorf("%w: %s is one of %s, and alone it does not know of their locks", ErrUnusable, where,
			r.marker.rules)
	}
	return nil
}

// completeSet looks at the masters, and gives markers to masters that need one.
func (b *bootstrap) completeSet(ctx context.Context) {
	requests := make([]*request, len(b.masters))
	for i := range requests {
		requests[i] = &request{purpose: look}
	}
	b.poll(ctx, requests)
	switch b.conclude(b.found) {
	case leave:
	case foundNew:
		b.foundSet(ctx)
	case admit:
		i := slices.IndexFunc(b.found, finding.marked)
		b.assignMarkers(ctx, b.found[i].marker, false)
	}
}

// step is what follows from a look at the masters.
type step uint8

const (
	leave    step = iota // the markers as they are
	foundNew             // a set, of masters that have none
	admit                // the masters without a marker to the set
)

// conclude returns what follows from a look.
//
// Whatever gets a marker abstains first, also where no master has one: nothing tells a master that is new from one that
// has forgotten its leases and would vote at once (case no-abstention). Neither the silence of the others does, nor
// their answers: each master is asked at another moment, and may be emptied after it was asked (case founded-at-once).
// So no step needs to know what another process does meanwhile, and no request does harm if it is late.
func (v *view) conclude(all []finding) step {
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
	case marked > 0:
		return admit
	case answered >= v.quorum() && fit:
		return foundNew
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

// foundSet makes a set of masters without markers.
func (b *bootstrap) foundSet(ctx context.Context) {
	if b.nameSet(ctx, false) != "" {
		b.assignMarkers(ctx, b.found[b.founder].marker, false)
	}
}

// wordQuarantine is for how long a master abstains that is new by the word of a caller: a little longer than tokens may
// run ahead of its clock.
const wordQuarantine = 1100 * time.Millisecond

// foundByWord is foundSet by the word of the caller that the masters are new: they have never granted a lock, and lose
// no data before it returns. So there are no leases that they could have forgotten, and no reason to abstain for a TTL
// (case founded-by-word). If the word is false, two clients may hold a lock at once (case founded-false-word). Their
// tokens are in order all the same: the end of a quarantine is a floor of them, and after this one it is larger than
// any token that the master can have minted before.
func (b *bootstrap) foundByWord(ctx context.Context, inUse func() error) error {
	requests := make([]*request, len(b.masters))
	for i := range requests {
		requests[i] = &request{purpose: look, reads: true}
	}
	b.poll(ctx, requests)
	if err := b.notNew(); err != nil {
		return err
	}
	if err := inUse(); err != nil {
		return err
	}
	if b.nameSet(ctx, true) != "" {
		b.assignMarkers(ctx, b.found[b.founder].marker, true)
		b.updateTerms(ctx)
	}
	left := time.Duration(0)
	for i, f := range b.found {
		if !f.inOrder() || f.abstains > wordQuarantine {
			begun := errors.New("is not in the new set: another client has begun one meanwhile")
			return b.notFounded(i, cmp.Or(f.err, f.defect, begun))
		}
		left = max(left, f.abstains)
	}
	over := time.NewTimer(left)
	defer over.Stop()
	select {
	case <-over.C:
		return nil
	case <-ctx.Done():
		return errs.Cause(ctx)
	}
}

// notNew returns the reasons that masters are not new.
func (b *bootstrap) notNew() error {
	var reasons []error
	for i, f := range b.found {
		switch {
		case f.state == silent:
			reasons = append(reasons, b.notFounded(i, fmt.Errorf("does not answer: %w", f.err)))
		case f.state == unfit:
			reasons = append(reasons, b.notFounded(i, f.defect))
		case f.state != unmarked || f.marker.layout != "":
			reasons = append(reasons, b.notFounded(i, errors.New("has a marker: it is not new")))
		}
	}
	return errs.Join(reasons...)
}

func (b *bootstrap) notFounded(master int, reason error) error {
	return fmt.Errorf("master %d (%s) %w", master, b.masters[master].Addr(), reason)
}

// nameSet gives the first master a marker, and returns the id of the set, or "". If several processes found a set at
// once, the first to reach the master with the smallest run id names it, and every process takes the name from that
// master.
func (b *bootstrap) nameSet(ctx context.Context, byWord bool) (set string) {
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
	requests[first] = &request{purpose: join, set: b.newID(), seat: first, seats: strings.Join(addrs, " "), byWord: byWord}
	founder := b.ask(ctx, requests)[first]
	if founder.err != nil || founder.marker.set == "" {
		return ""
	}
	replies := make([]reply, len(b.found))
	for i, f := range b.found {
		replies[i] = f.reply
	}
	replies[first] = founder
	b.found = b.judge(replies) // by the seats in the founder's marker
	if !b.found[first].marked() || byWord && founder.marker.set != requests[first].set {
		return ""
	}
	b.founder = first
	return founder.marker.set
}

// assignMarkers makes the masters without markers members of the set. The next client finds the markers there. A server
// that has no seat (see freeSeat) is another server, and must not count in place of the member.
func (b *bootstrap) assignMarkers(ctx context.Context, of marker, byWord bool) {
	known := b.knownTerms()
	requests := make([]*request, len(b.masters))
	for i, f := range b.found {
		switch {
		case f.marked():
			requests[i] = &request{purpose: look}
		case f.state == unmarked:
			requests[i] = &request{
				purpose: join, set: of.set, seat: f.seat, seats: of.seats, terms: known, instead: f.rival,
				byWord: byWord,
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
