package engine

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/ballot"
	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/internal/wire"
)

// ReleaseAll is Release for several leases, without the values of a context. The releases to one server are sent
// together, and the release timeout is for all.
func ReleaseAll(leases []*Lease) []error {
	e := leases[0].standing.Load().e
	errs, all := make([]error, len(leases)), make([]*giving, len(leases))
	calls := make([][]transport.Call, len(e.masters))
	for i, l := range leases {
		h, over := l.endByHolder()
		if h == nil {
			errs[i] = over
			continue
		}
		g := newGiving(h, nil, byTerms)
		l.mu.Lock()
		postings := g.calls(nil)
		l.mu.Unlock()
		e.underWay.add(-1)
		for _, p := range postings {
			calls[p.m.Index] = append(calls[p.m.Index], p.call)
		}
		if !g.unawaited {
			all[i] = g
		}
	}
	for i, m := range e.masters {
		m.PostAll(calls[i])
	}
	within, cancel := context.WithTimeout(context.Background(), e.cfg.ReleaseTimeout)
	defer cancel()
	for i, g := range all {
		if g == nil {
			continue
		}
		errs[i] = g.await(nil, within.Done())
		if failed, ok := errs[i].(*Error); ok {
			e.observers.warnOfRelease(g.h, failed)
		}
	}
	return errs
}

// release is the release of a hold on one master. It has all that it needs, so the lease may be collected: a server
// that is down for an hour keeps no leases in memory.
type release struct {
	of        *releaseQueues // of the master
	key       string
	hold      string
	tombstone wire.Tombstone
	minimum   minimum
	outrun    wire.Outrun
	until     clock.Instant // the hold has expired there by then

	heir     *hold           // the hold that goes on in place of this one, nil for none: see inherit
	onAnswer func()          // sends the requests that wait for the answer; nil if none may wait
	job      *giving         // counts the answer; nil in a queue, and for a single master's caller
	isOver   bool            // the job has counted it; under the job's mutex
	node     *transport.Node // that has confirmed it; see recentReleases
}

// lateness bounds how long a request may be on its way to a master after its client has given up on it. By then the
// client's connection is closed.
const lateness = time.Minute

// request returns the request for a release that is about to be sent.
func (r *release) request(now clock.Instant) wire.Release {
	request := wire.Release{Hold: r.hold, Tombstone: r.tombstone, Outrun: r.outrun}
	if rest := r.minimum.until - now.Mono; rest > 0 {
		request.Minimum = wire.Minimum{Least: r.minimum.least, Rest: rest}
	}
	return request
}

// hasLast reports whether the request has an argument that stands in place of other holds.
func (r *release) hasLast() bool { return r.minimum.least > 0 || r.outrun.Grant > 0 }

func (r *release) Receive(result rueidis.RedisResult, sent clock.Instant) {
	had, failure := r.answered(result, sent)
	if r.onAnswer != nil {
		r.onAnswer()
	}
	r.job.count(r.of.m.Index, had, failure)
}

// answered applies the answer. A release that failed is retried in the background until the hold has expired. It may
// have run: the second run then finds the hold gone, and touches no other hold.
func (r *release) answered(result rueidis.RedisResult, sent clock.Instant) (had bool, failure *NodeFailure) {
	m := r.of.m
	reply, err := wire.ReadRelease(result)
	if err != nil {
		again := *r
		again.job, again.onAnswer = nil, nil
		if r.job == nil || r.job.by != adopting || !r.job.postpone(&again, err) {
			r.of.retry(&again, err)
		}
		failed := failureOf(m, r.key, m.Explain(err))
		return false, &failed
	}
	m.Sample(r.key, sent, reply.Micros)
	r.confirmed(reply)
	return reply.Was == wire.WasGranted, nil
}

// confirmed is called for a master's answer that it does not have the hold any more.
func (r *release) confirmed(reply wire.ReleaseReply) {
	m := r.of.m
	if !m.Standalone {
		r.of.recent.note(r)
	}
	if reply.Broken != nil {
		r.heir.inherit(reply.Broken)
	}
	if reply.More != wire.NoMore {
		r.of.e.waiters[m.Index].goOn(r.key, reply.More)
	}
}

// giving is the release of one hold on its masters. It counts the answers, and is under way until further ones change
// nothing. It outlives the call that waits for it, because answers may arrive after the call's timeout.
type giving struct {
	h, heir   *hold // heir goes on in place of h, nil for none: see inherit
	by        way
	unawaited bool          // no caller waits for it, by its terms: the verdict goes to the hooks and to the logger
	certain   chan struct{} // closed when further answers change nothing
	releases  []release     // of each master; without a hold where none is posted

	mu          sync.Mutex // guards what follows
	decided     bool       // certain is closed
	had, hadNot int        // masters, by their answers
	failures    []NodeFailure
	postponed   []func() // releases of an adoption that failed, to be repeated if it succeeds
	taken       bool     // it has succeeded
}

// way is how a hold is given back, and what the answers are to show.
type way uint8

const (
	awaited  way = iota // a caller waits until a quorum does not have the hold, and may grant the lock to other holds
	byTerms             // as awaited, unless the terms have the caller not wait
	atOnce              // no caller waits, but single attempts do: see leaving
	adopting            // a caller waits until it is known that a quorum had the hold until it was released
)

func newGiving(h, heir *hold, by way) *giving {
	h.e.underWay.add(+1)
	releases := make([]release, len(h.e.masters))
	return &giving{h: h, heir: heir, by: by, certain: make(chan struct{}), releases: releases}
}

// giveBack releases a hold that has ended, and waits for the verdict: at most for the release timeout, and if bounded
// not beyond the end of ctx. The releases on masters that have not answered by then continue in the background, and
// Close waits for them.
func giveBack(ctx context.Context, bounded bool, h, heir *hold, by way) error {
	returned := false
	defer func() { // a method of ctx or a hook of the client has panicked, perhaps before the release was sent
		if !returned {
			h.lease.mu.Lock()
			defer h.lease.mu.Unlock()
			giveAtOnce(h, heir)
		}
	}()
	err := tryGiveBack(ctx, bounded, h, heir, by)
	returned = true
	return err
}

// tryGiveBack is giveBack that a panic ends.
func tryGiveBack(ctx context.Context, bounded bool, h, heir *hold, by way) error {
	e := h.e
	var over <-chan struct{}
	if bounded {
		over = ctx.Done()
	}
	if len(e.masters) == 1 && (by == awaited || !h.terms.BackgroundRelease) {
		alone := giving{h: h, heir: heir}
		return alone.directly(ctx, over)
	}
	g := newGiving(h, heir, by)
	h.lease.mu.Lock()
	calls := g.calls(make(postings, 0, fewMasters))
	h.lease.mu.Unlock()
	if calls.post(); g.unawaited {
		return nil
	}
	timeout := e.timeouts.start(e.cfg.ReleaseTimeout)
	defer e.timeouts.stop(timeout)
	return g.await(timeout.C, over)
}

// giveAtOnce gives the hold back in the background, under mu, and removes it from the registry. The releases are
// counted first, so that Close sees either the hold or its releases. They are sent when mu is unlocked, and not
// together with others, since the next single attempts of this process wait for the answers.
func giveAtOnce(h, heir *hold) {
	h.lease.mu.afterUnlock(newGiving(h, heir, atOnce).calls(nil).post)
	h.e.registry.forget(h.id)
}

// giveTogether is giveAtOnce through the queues: the releases of a crowd that gives up are sent together.
func giveTogether(h, heir *hold) {
	g := giving{h: h, heir: heir}
	g.withdrawUnsent()
	for i, m := range h.e.masters {
		if h.ballot.Vote(i).MayBeHeld() {
			g.queue(m)
		}
	}
	h.e.registry.forget(h.id)
}

// directly is giveBack on a single master, on the caller's goroutine. A request that was answered has run before the
// release. For a request that was not answered, the release leaves a tombstone if it finds no hold.
func (g *giving) directly(ctx context.Context, over <-chan struct{}) error {
	h := g.h
	e, m := h.e, h.e.masters[0]
	var within context.Context
	if over == nil {
		alone := m.Detached(ctx, e.cfg.ReleaseTimeout)
		defer alone.Stop()
		within = alone
	} else {
		bounded, cancel := context.WithTimeout(ctx, e.cfg.ReleaseTimeout)
		defer cancel()
		within = bounded
	}
	h.lease.mu.Lock()
	now := e.clock.Now()
	r := g.on(m, now) // answers may still arrive
	h.lease.mu.Unlock()
	var keys [2]string
	var array [3]string
	args := r.request(now).Args(array[:0])
	result, sent := m.Do(within, e.scripts.of(m).releaseOf(h), e.keys.ForCall(keys[:0], r.key), wire.Vote{}, args)
	if result.NonRedisError() != nil && within.Err() != nil {
		silence := &transport.NoReply{After: e.clock.Now().Mono - sent.Mono}
		if over != nil && ctx.Err() != nil { // not a failure of the master, so no backoff delays other releases
			pending := r
			pending.announce()
			pending.of.queue(r.key).add(&pending)
			return g.unreleased(NodeFailures{failureOf(m, r.key, silence)}, 0)
		}
		result = rueidis.NewErrorResult(silence)
	}
	switch had, failure := r.answered(result, sent); {
	case had:
		return nil
	case failure == nil:
		return g.wasGone()
	default:
		return g.unreleased(NodeFailures{*failure}, 0)
	}
}

// calls makes the releases of all that the masters may have of the hold, under mu, for the caller to post once mu is
// unlocked. All masters get one token floor for the tokens that hand-offs mint. Several masters grant the next holder
// at this moment, and its token needs no raise if they mint the same one.
//
// Without a caller that waits, the release on a server that fails goes with the next probe. No attempt waits for that:
// it fails at once, as it would without the release.
func (g *giving) calls(calls postings) postings {
	h := g.h
	e, lock := h.e, h.key
	if g.by == byTerms && h.terms.BackgroundRelease {
		// If so many releases have no answer, the servers are slower than their clients, and the caller waits.
		if g.unawaited = e.unawaited.Add(1) <= releasesUnderWay; !g.unawaited {
			e.unawaited.Add(-1)
		}
	}
	g.withdrawUnsent()
	keys, now, proposal := e.keys.ForCall(nil, h.key), e.clock.Now(), e.tokens.proposalAfter(h.token())
	var args []string // mostly the same for all masters
	var last release
	for i, m := range e.masters {
		switch r := &g.releases[i]; {
		case !h.ballot.Vote(i).MayBeHeld(): // it has let go of it
			g.count(i, false, nil)
		case g.by == atOnce && m.At(lock).Failing():
			g.queue(m)
			g.count(i, false, nil)
		default:
			*r = g.on(m, now)
			if r.job = g; g.by == atOnce || g.unawaited {
				r.onAnswer = r.of.leaving.add(lock)
			}
			if args == nil || r.tombstone != last.tombstone || r.outrun != last.outrun {
				last, args = *r, r.request(now).Args(make([]string, 0, 4))
			}
			calls = append(calls, r.posting(keys, args, proposal))
		}
	}
	return calls
}

// queue hands the release on one master to its queue, under mu.
func (g *giving) queue(m *transport.Master) {
	r := g.on(m, g.h.e.clock.Now())
	r.announce()
	g.h.lease.mu.afterUnlock(func() { r.of.queue(r.key).add(&r) })
}

// on returns the release of what one master may have of the hold, under mu.
//
// Without a tombstone, a request that arrives after the release would be granted, and the lock would be held without a
// holder for a TTL (cases no-tombstone and overtake). A request without an answer may be the one that was granted. An
// earlier request that failed may still be on its way too, over a connection that was replaced since. It can do no harm
// beyond the TTL of its grant, or once its connection is closed.
func (g *giving) on(m *transport.Master, now clock.Instant) release {
	h := g.h
	e, kept := h.e, h.terms.TTL
	r := release{of: e.releases[m.Index], key: h.key, hold: h.id, heir: g.heir}
	if h.extra != nil {
		r.minimum = h.keeping.minimum()
		kept = max(h.keeping.longestTTL(), h.keeping.minimumLeft())
	}
	// A vote learns of no grant once the hold has ended. So the client knew this one while it trusted in the lease.
	if several := len(e.masters) > 1; several && h.isStanding() && h.done.err() == ErrReleased && h.outrun(m) {
		r.outrun = wire.Outrun{Token: h.token(), Grant: h.ballot.Vote(m.Index).Token}
	}
	// Renewals end with the lease, so nothing can have moved the expiry since. The node timeout covers a call that is
	// still on its way.
	r.until = now.Add(kept + e.cfg.NodeTimeout)
	if vote := h.ballot.Vote(m.Index); vote.Unanswered() {
		late := wire.FormatMillis(min(max(kept, h.terms.MinHold), lateness))
		r.tombstone = wire.Tombstone{TTL: late, Several: vote.MayArriveLate()}
	}
	return r
}

func (r *release) posting(keys, args []string, proposal int64) posting {
	m := r.of.m
	return posting{m, transport.Call{
		Script: r.of.e.scripts.of(m).releaseOf(r.job.h), Keys: keys, Vote: m.Vote(proposal), Args: args,
		To: r, Urgent: true, AnyServer: r.job.by != adopting,
	}}
}

// withdrawUnsent withdraws the requests that have not left, under mu. What never left needs no release: while a server
// stands still, most of what is asked does not leave.
func (g *giving) withdrawUnsent() {
	h := g.h
	for i, m := range h.e.masters {
		vote := h.ballot.Vote(i)
		if vote.State == ballot.Asked && m.Withdraw(h.key, h.id) {
			vote.Unsent()
		}
	}
}

func (g *giving) count(master int, had bool, failure *NodeFailure) {
	g.mu.Lock()
	g.releases[master].isOver = true
	switch {
	case failure != nil:
		g.failures = append(g.failures, *failure)
	case had:
		g.had++
	default:
		g.hadNot++
	}
	certain := !g.decided && g.isCertain()
	g.decided = g.decided || certain
	g.mu.Unlock()
	if !certain {
		return
	}
	close(g.certain)
	e := g.h.e
	e.underWay.add(-1)
	if g.unawaited {
		e.unawaited.Add(-1)
		g.report(g.verdict())
	}
}

// report reports how a release that no caller waits for has failed: the caller was told that the lease was held until
// then.
func (g *giving) report(err error) {
	h := g.h
	h.lease.mu.Lock()
	defer h.lease.mu.Unlock()
	switch err := err.(type) {
	case *Loss:
		h.e.counters.lost(err.Reason)
		h.e.losses.add(h, err)
		h.e.observers.warnOfLoss(h, err)
	case *Error:
		h.e.observers.warnOfRelease(h, err)
	default:
		return
	}
	h.e.observers.final(OnReleaseFailed, h, err)
}

// await returns the verdict once it is certain, or when the timeout or the caller's time is over.
func (g *giving) await(timeout <-chan time.Time, over <-chan struct{}) error {
	select {
	case <-g.certain:
	case <-timeout:
	case <-over:
	}
	return g.verdict()
}

// verdict returns the verdict of the answers so far. Later answers change nothing for the caller. A release that they
// show to have failed continues in the background. If no quorum has confirmed, the masters that are still silent are
// causes too.
func (g *giving) verdict() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch g.found(g.had, g.hadNot) {
	case gone:
		return g.wasGone()
	case confirmed:
		return nil
	default:
		failed := g.unreleased(g.failures, g.had+g.hadNot)
		failed.Nodes = g.causes()
		return failed
	}
}

// wasGone returns the loss of a hold that did not stand any more when the release arrived, because the caller that
// relied on it must know.
func (g *giving) wasGone() *Loss {
	h := g.h
	h.e.evictions.suspect(h.key)
	return &Loss{Name: h.name, Token: h.token(), Reason: Taken, by: h.e, lock: h.key}
}

// unreleased returns the error of a release that a quorum has not confirmed.
func (g *giving) unreleased(failures NodeFailures, got int) *Error {
	h := g.h
	kind, forGood := h.e.masters.refusal(failures)
	return &Error{
		Op: OpRelease, Kind: kind, Unknown: !forGood, Name: h.name, Need: h.e.masters.quorum(), Got: got, Nodes: failures,
	}
}

// causes returns the masters that failed and the masters that are silent so far, under mu. The silence is given as the
// release timeout, which is right for Release and Adopt, the only callers that use it.
func (g *giving) causes() NodeFailures {
	all, e := slices.Clone(g.failures), g.h.e
	for i, m := range e.masters {
		if !g.releases[i].isOver {
			all = append(all, failureOf(m, g.h.key, &transport.NoReply{After: e.cfg.ReleaseTimeout}))
		}
	}
	slices.SortFunc(all, func(a, b NodeFailure) int { return cmp.Compare(a.Index, b.Index) })
	return all
}

// postpone keeps a release of an adoption that has failed, and reports whether it did: it is repeated only if the
// adoption succeeds, since otherwise another process may adopt the hold.
func (g *giving) postpone(r *release, cause error) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.taken {
		g.postponed = append(g.postponed, func() { r.of.retry(r, cause) })
	}
	return !g.taken
}

// finding is what the answers to a release show.
type finding uint8

const (
	notKnown  finding = iota
	confirmed         // what the way of the release is to show
	gone              // a quorum no longer had the hold when the release arrived, so the lease protected nothing by then
)

// found returns what so many answers show.
func (g *giving) found(had, hadNot int) finding {
	switch need := g.h.e.masters.quorum(); {
	case g.by == atOnce: // all answers are awaited
		return notKnown
	case hadNot >= need:
		return gone
	case had >= need, g.by != adopting && had+hadNot >= need:
		return confirmed
	default:
		return notKnown
	}
}

// isCertain reports whether the outstanding answers cannot change what is found. What holds if all of them go one way,
// and if all go the other, holds for any mixture.
func (g *giving) isCertain() bool {
	found, open := g.found(g.had, g.hadNot), len(g.releases)-g.had-g.hadNot-len(g.failures)
	return open == 0 || found != notKnown &&
		found == g.found(g.had+open, g.hadNot) && found == g.found(g.had, g.hadNot+open)
}
