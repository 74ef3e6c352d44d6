package engine

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/hold"
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
		h, releases, over := l.endByHolder(nil)
		if h == nil {
			errs[i] = over
			continue
		}
		g := newGiving(h, nil, byTerms)
		postings := g.calls(releases, nil)
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

// giving is the release of one hold on its masters. It counts the answers, and is under way until further ones change
// nothing. It outlives the call that waits for it, because answers may arrive after the call's timeout.
type giving struct {
	h, heir   *driver // heir goes on in place of h, nil for none: see inherit
	by        way
	unawaited bool          // no caller waits for it, by its terms: the verdict goes to the hooks and to the logger
	certain   chan struct{} // closed when further answers change nothing
	releases  []release     // of each master; without a hold where none is posted

	mu        sync.Mutex // guards what follows
	answers   hold.Giving
	failures  []NodeFailure
	postponed []func() // releases of an adoption that failed, to be repeated if it succeeds
	taken     bool     // it has succeeded
}

// way is how a hold is given back, and what the answers are to show.
type way uint8

const (
	awaited  way = iota // a caller waits until a quorum does not have the hold, and may grant the lock to other holds
	byTerms             // as awaited, unless the terms have the caller not wait
	atOnce              // no caller waits, but single attempts do: see leaving
	adopting            // a caller waits until it is known that a quorum had the hold until it was released
)

// shows says what the answers of each way are to show.
var shows = [...]hold.Shows{awaited: hold.IsGone, byTerms: hold.IsGone, atOnce: hold.IsOver, adopting: hold.WasHeld}

func newGiving(h, heir *driver, by way) *giving {
	e := h.e
	e.underWay.add(+1)
	g := &giving{h: h, heir: heir, by: by, certain: make(chan struct{}), releases: make([]release, len(e.masters))}
	g.answers = hold.NewGiving(shows[by], len(e.masters))
	if by == byTerms && h.terms.BackgroundRelease {
		// If so many releases have no answer, the servers are slower than their clients, and the caller waits.
		if g.unawaited = e.unawaited.Add(1) <= releasesUnderWay; !g.unawaited {
			e.unawaited.Add(-1)
		}
	}
	return g
}

// giveBack sends the releases of a hold that has ended, and waits for the verdict: at most for the release timeout, and
// if bounded not beyond the end of ctx. The releases on masters that have not answered by then continue in the
// background, and Close waits for them.
func giveBack(ctx context.Context, bounded bool, h, heir *driver, releases []hold.Effect, by way) (err error) {
	e, returned := h.e, false
	defer func() { // a method of ctx or a hook of the client has panicked, perhaps before the release was sent
		if !returned {
			newGiving(h, heir, atOnce).calls(releases, nil).post()
		}
	}()
	var over <-chan struct{}
	if bounded {
		over = ctx.Done()
	}
	if len(e.masters) == 1 && (by == awaited || !h.terms.BackgroundRelease) {
		alone := giving{h: h, heir: heir}
		err = alone.directly(ctx, over, &releases[0])
	} else {
		g := newGiving(h, heir, by)
		if g.calls(releases, make(postings, 0, fewMasters)).post(); !g.unawaited {
			timeout := e.timeouts.start(e.cfg.ReleaseTimeout)
			defer e.timeouts.stop(timeout)
			err = g.await(timeout.C, over)
		}
	}
	returned = true
	return err
}

// giveInBackground sends the releases at the beginning of these effects in the background, under mu. They are counted
// at once, so that Close sees either the hold or its releases.
func giveInBackground(h *driver, releases []hold.Effect) {
	other := func(f hold.Effect) bool { return f.Kind != hold.SendRelease }
	if end := slices.IndexFunc(releases, other); end >= 0 {
		releases = releases[:end]
	}
	var heir *driver
	if releases[0].Heir {
		heir = h
	}
	switch releases[0].Way {
	case hold.AtOnce: // not together with others, since the next single attempts of this process wait for the answers
		newGiving(h, heir, atOnce).calls(releases, nil).post()
	default: // through the queues: the releases of a crowd that gives up are sent together
		g := giving{h: h, heir: heir}
		for i := range releases {
			if !g.withdraw(&releases[i]) {
				g.queue(&releases[i])
			}
		}
	}
}

// directly is giveBack on a single master, on the caller's goroutine. A request that was answered has run before the
// release. For a request that was not answered, the release leaves a tombstone if it finds no hold.
func (g *giving) directly(ctx context.Context, over <-chan struct{}, f *hold.Effect) error {
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
	now := e.clock.Now()
	r := g.on(f, now)
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

// calls makes the releases, for the caller to post. All masters get one token floor for the tokens that hand-offs mint.
// Several masters grant the next holder at this moment, and its token needs no raise if they mint the same one.
//
// Without a caller that waits, the release on a server that fails goes with the next probe. No attempt waits for that:
// it fails at once, as it would without the release.
func (g *giving) calls(releases []hold.Effect, calls postings) postings {
	h := g.h
	e, lock := h.e, h.key
	keys, now, proposal := e.keys.ForCall(nil, h.key), e.clock.Now(), e.tokens.ProposalAfter(h.token())
	var args []string // mostly the same for all masters
	var last release
	for i := range releases {
		f := &releases[i]
		switch m, r := e.masters[f.Master], &g.releases[f.Master]; {
		case g.withdraw(f):
		case g.by == atOnce && m.At(lock).Failing():
			g.queue(f)
		default:
			*r = g.on(f, now)
			if r.job = g; g.by == atOnce || g.unawaited {
				r.onAnswer = r.of.leaving.add(lock)
			}
			if args == nil || r.tombstone != last.tombstone || r.outrun != last.outrun {
				last, args = *r, r.request(now).Args(make([]string, 0, 4))
			}
			calls = append(calls, r.posting(keys, args, proposal))
		}
	}
	for i := range g.releases {
		if g.releases[i].job == nil { // it has let go of the hold, or its release is in a queue
			g.count(i, false, nil)
		}
	}
	return calls
}

// queue hands the release on one master to its queue, under mu.
func (g *giving) queue(f *hold.Effect) {
	r := g.on(f, g.h.e.clock.Now())
	r.announce()
	g.h.lease.mu.afterUnlock(func() { r.of.queue(r.key).add(&r) })
}

// on returns the release on one master. The node timeout covers a call that is still on its way.
func (g *giving) on(f *hold.Effect, now clock.Instant) release {
	h := g.h
	r := release{
		of: h.e.releases[f.Master], key: h.key, hold: h.id, heir: g.heir,
		until: now.Add(f.Keep + h.e.cfg.NodeTimeout),
	}
	if f.At > 0 {
		r.minimum = minimum{h.terms.MinHold, f.At}
	}
	if f.Outrun > 0 {
		r.outrun = wire.Outrun{Token: f.Token, Grant: f.Outrun}
	}
	if f.TTL > 0 {
		r.tombstone = wire.Tombstone{TTL: wire.FormatMillis(f.TTL), Several: f.Several}
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

func (s *scriptSet) releaseOf(h *driver) *transport.Script {
	if h.mode == fencing.Write && (h.extra == nil || h.extra.owner == "" && h.extra.shared.block == 0) {
		return s.plainRelease
	}
	return s.release
}

// withdraw takes the request for the hold back if it still waits in this process, and reports whether it did. Then that
// master needs no release. A server stands still, say, and 1,000 attempts end: most of their requests have not left.
func (g *giving) withdraw(f *hold.Effect) bool {
	return f.Unsent && g.h.e.masters[f.Master].Withdraw(g.h.key, g.h.id)
}

func (g *giving) count(master int, had bool, failure *NodeFailure) {
	g.mu.Lock()
	g.releases[master].isOver = true
	if failure != nil {
		g.failures = append(g.failures, *failure)
	}
	certain := g.answers.Count(had, failure != nil)
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
	switch g.answers.Found() {
	case hold.WasGone:
		return g.wasGone()
	case hold.Shown:
		return nil
	default:
		had, hadNot := g.answers.Had()
		failed := g.unreleased(g.failures, had+hadNot)
		failed.Nodes = g.causes()
		return failed
	}
}

// wasGone returns the loss of a hold that was gone when its release arrived: the caller that relied on it has to know.
func (g *giving) wasGone() *Loss {
	h := g.h
	return &Loss{Name: h.name, Token: h.token(), Reason: Taken}
}

// unreleased returns the error of a release that fewer masters than a quorum have confirmed.
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
