package engine

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/ballot"
	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/internal/wire"
)

// release is the release of a hold on one master. It has all that it needs, so the lease may be collected: a server
// that is down for an hour keeps no leases in memory.
type release struct {
	of        *releaseQueues // of the master
	key       wire.LockKey
	hold      string
	tombstone wire.Tombstone
	minimum   minimum
	until     clock.Instant // the hold has expired there by then

	heir   *hold           // the hold that goes on in place of this one, nil for none: see inherit
	left   func()          // sends the requests that wait for the answer; nil if none may wait
	job    *giving         // counts the answer; nil in a queue, and for a single master's caller
	isOver bool            // the job has counted it; under the job's mutex
	node   *transport.Node // that has confirmed it; see recentReleases
}

// releaseOn returns the release of what one master may have of this hold, under mu.
//
// Without a tombstone, a request that arrives after the release would be granted, and the lock would be held without a
// holder for a TTL (cases no-tombstone and overtake). A request without an answer may be the one that was granted. An
// earlier request that failed may still be on its way too, over a connection that was replaced since. It can do no harm
// beyond the TTL of its grant, or once its connection is closed.
func (h *hold) releaseOn(m *transport.Master, heir *hold) release {
	e, kept := h.e, h.terms.TTL
	r := release{of: e.releases[m.Index], key: h.key, hold: h.id, heir: heir}
	if h.extra != nil {
		r.minimum = h.keeping.minimum()
		kept = max(h.keeping.longestTTL(), h.keeping.minimumLeft())
	}
	// Renewals end with the lease, so nothing can have moved the expiry since. The node timeout covers a call that is
	// still on its way.
	r.until = e.clock.Now().Add(kept + e.cfg.NodeTimeout)
	if vote := h.ballot.Vote(m.Index); vote.Unanswered() {
		late := wire.FormatMillis(min(max(kept, h.terms.MinHold), lateness))
		r.tombstone = wire.Tombstone{TTL: late, Several: vote.MayArriveLate()}
	}
	return r
}

// lateness bounds how long a request may be on its way to a master after its client has given up on it. By then the
// client's connection is closed.
const lateness = time.Minute

// request returns the request for a release that is about to be sent.
func (r *release) request(now clock.Instant) wire.Release {
	request := wire.Release{Hold: r.hold, Tombstone: r.tombstone}
	if rest := r.minimum.until - now.Mono; rest > 0 {
		request.Minimum = wire.Minimum{Least: r.minimum.least, Rest: rest}
	}
	return request
}

// Receive counts the answer to a release that was posted.
func (r *release) Receive(result rueidis.RedisResult, sent clock.Instant) {
	had, failure := r.answered(result, sent)
	if r.left != nil {
		r.left()
	}
	r.job.count(r.of.m.Index, had, failure)
}

// answered applies the answer. A release that failed is retried in the background until the hold has expired. It may
// have run: the second run then finds the hold gone, and touches no other hold.
func (r *release) answered(result rueidis.RedisResult, sent clock.Instant) (had bool, failure *NodeFailure) {
	m, adopts := r.of.m, r.job != nil && r.job.asks == hadUntilThen
	if !adopts {
		result = transport.OfAnyServer(result)
	}
	reply, err := wire.ReadRelease(result)
	if err != nil {
		again := *r
		again.job, again.left = nil, nil
		if !adopts || !r.job.postpone(&again, err) {
			r.of.retry(&again, err)
		}
		failed := failureOf(m, r.key, m.Explain(err))
		return false, &failed
	}
	m.Sample(r.key.LockHash(), sent, reply.Micros)
	r.confirmed(reply)
	return reply.Was == wire.WasGranted, nil
}

// confirmed is called for a master's answer that it does not have the hold any more.
func (r *release) confirmed(reply wire.ReleaseReply) {
	m := r.of.m
	if !m.Standalone() {
		r.of.recent.note(r)
	}
	if reply.Broken != nil {
		r.heir.inherit(reply.Broken)
	}
	if reply.More != wire.NoMore {
		r.of.e.doRemaining(m, r.key, reply.More)
	}
}

// giving is the release of one hold on several masters, or on a single one whose answer its caller does not wait for.
// It counts the answers, and is unconfirmed until further ones change nothing. It outlives the call that waits for it,
// because answers may arrive after the call's timeout.
type giving struct {
	h         *hold
	asks      question
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

func newGiving(h *hold, asks question) *giving {
	e := h.e
	e.unconfirmed.add(+1)
	return &giving{h: h, asks: asks, certain: make(chan struct{}), releases: make([]release, len(e.masters))}
}

// way is how a hold is given back.
type way uint8

const (
	awaited way = iota // a caller waits for the verdict
	byTerms            // as awaited, unless the terms have the caller not wait
	atOnce             // no caller waits, but single attempts do: see leaving
)

// give makes the releases of all that the masters may have of the hold, under mu, for the caller to post once mu is
// unlocked. All masters get one token floor for the tokens that hand-offs mint. Several masters grant the next holder
// at this moment, and its token needs no raise if they mint the same one.
//
// Without a caller that waits, the release on a server that fails goes with the next probe. No attempt waits for that:
// it fails at once, as it would without the release.
func (h *hold) give(by way, heir *hold, calls postings) (*giving, postings) {
	e, lock := h.e, h.key.LockHash()
	asks := doesNotHave
	if by == atOnce {
		asks = nothing
	}
	g := newGiving(h, asks)
	if by == byTerms && h.terms.BackgroundRelease {
		// If so many releases have no answer, the servers are slower than their clients, and the caller waits.
		if g.unawaited = e.inBackground.Add(1) <= releasesUnderWay; !g.unawaited {
			e.inBackground.Add(-1)
		}
	}
	h.withdrawUnsent()
	keys, now, proposal := e.keys.ForCall(h.key), e.clock.Now(), e.tokens.proposalAfter(h.token())
	var args []string // mostly the same for all masters
	var tombstone wire.Tombstone
	for i, m := range e.masters {
		switch r := &g.releases[i]; {
		case !h.ballot.Vote(i).MayBeHeld(): // it has let go of it
			g.count(i, false, nil)
		case by == atOnce && m.At(lock).Failing():
			h.queueRelease(m, heir)
			g.count(i, false, nil)
		default:
			*r = h.releaseOn(m, heir)
			if r.job = g; by == atOnce || g.unawaited {
				r.left = r.of.leaving.add(lock)
			}
			if args == nil || r.tombstone != tombstone {
				tombstone, args = r.tombstone, r.request(now).Args(make([]string, 0, 4))
			}
			calls = append(calls, r.posting(keys, args, proposal))
		}
	}
	return g, calls
}

// posting returns the call for a release.
func (r *release) posting(keys, args []string, proposal int64) posting {
	m := r.of.m
	return posting{m, transport.Call{
		Script: r.of.e.scriptsOf(m).release, Keys: keys, Vote: m.Vote(proposal), Args: args, To: r, Urgent: true,
	}}
}

// withdrawUnsent withdraws the requests that have not left, under mu. What never left needs no release: while a server
// stands still, most of what is asked does not leave.
func (h *hold) withdrawUnsent() {
	for i, m := range h.e.masters {
		vote := h.ballot.Vote(i)
		if vote.State == ballot.Asked && m.Withdraw(h.key.LockHash(), h.id) {
			vote.Unsent()
		}
	}
}

// count counts one master's answer.
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
	e.unconfirmed.add(-1)
	if g.unawaited {
		e.inBackground.Add(-1)
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
		h.warnOf(err)
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
	switch g.found() {
	case gone:
		return g.h.wasGone()
	case confirmed:
		return nil
	default:
		failed := g.h.unreleased(g.failures, g.had+g.hadNot)
		failed.Nodes = g.causes()
		return failed
	}
}

// wasGone returns the loss of a hold that did not stand any more when the release arrived, because the caller that
// relied on it must know.
func (h *hold) wasGone() *Loss {
	h.e.suspect(h.key.LockHash())
	return &Loss{Name: h.name, Token: h.token(), Reason: Taken, by: h.e, lock: h.key.LockHash()}
}

// unreleased returns the error of a release that a quorum has not confirmed.
func (h *hold) unreleased(failures NodeFailures, got int) *Error {
	kind, forGood := h.e.refusal(failures)
	return &Error{
		Op: OpRelease, Kind: kind, Unknown: !forGood, Name: h.name, Need: h.e.quorum(), Got: got, Nodes: failures,
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

// question is what the answers to a release are to show. Answers that are enough for one question may be too few for
// another.
type question uint8

const (
	doesNotHave  question = iota // that a quorum does not have the hold any more, and may grant the lock to other holds
	hadUntilThen                 // that a quorum had the hold until it was released
	nothing                      // all answers are awaited
)

type finding uint8

const (
	notKnown  finding = iota
	confirmed         // the answers show it
	gone              // a quorum no longer had the hold when the release arrived, so the lease protected nothing by then
)

func (q question) found(had, hadNot, need int) finding {
	switch {
	case q == nothing:
		return notKnown
	case hadNot >= need:
		return gone
	case had >= need, q == doesNotHave && had+hadNot >= need:
		return confirmed
	default:
		return notKnown
	}
}

// found returns what the answers show so far.
func (g *giving) found() finding { return g.asks.found(g.had, g.hadNot, g.h.e.quorum()) }

// isCertain reports whether the outstanding answers cannot change what is found. What holds if all of them go one way,
// and if all go the other, holds for any mixture.
func (g *giving) isCertain() bool {
	found, open, need := g.found(), len(g.releases)-g.had-g.hadNot-len(g.failures), g.h.e.quorum()
	return open == 0 || found != notKnown &&
		found == g.asks.found(g.had+open, g.hadNot, need) && found == g.asks.found(g.had, g.hadNot+open, need)
}
