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
	"github.com/seed74116694/fencelock/internal/lockerr"
	"github.com/seed74116694/fencelock/internal/releases"
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
		e.pending.add(-1)
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
		if failed, ok := errs[i].(*lockerr.Error); ok {
			e.observers.warnOfRelease(g.h, failed)
		}
	}
	return errs
}

// giving is the release of one hold on its masters. It counts the answers, and is under way until further ones change
// nothing. It outlives the call that waits for it, because answers may arrive after the call's timeout.
type giving struct {
	h, heir   *driver // heir goes on in place of h, nil for none: see Inherit
	by        way
	unawaited bool          // no caller waits for it, by its terms: the verdict goes to the hooks and to the logger
	certain   chan struct{} // closed when further answers change nothing
	parts     []part        // of each master; without a hold where none is posted

	mu        sync.Mutex // guards what follows
	answers   hold.Giving
	failures  []lockerr.NodeFailure
	postponed []func() // releases of an adoption that failed, to be repeated if it succeeds
	taken     bool     // it has succeeded
}

// way is how a hold is given back, and what the answers are to show.
type way uint8

const (
	awaited  way = iota // a caller waits until a quorum does not have the hold, and may grant the lock to other holds
	byTerms             // as awaited, unless the terms have the caller not wait
	adopting            // a caller waits until it is known that a quorum had the hold until it was released
)

// shows says what the answers of each way are to show.
var shows = [...]hold.Shows{awaited: hold.IsGone, byTerms: hold.IsGone, adopting: hold.WasHeld}

// manyUnawaited releases that no caller waits for may have no answer. Beyond that the servers are slower than their
// clients, and the caller waits.
const manyUnawaited = 1024

func newGiving(h, heir *driver, by way) *giving {
	e := h.e
	e.pending.add(+1)
	g := &giving{h: h, heir: heir, by: by, certain: make(chan struct{}), parts: make([]part, len(e.masters))}
	g.answers = hold.NewGiving(shows[by], len(e.masters))
	if by == byTerms && h.terms.BackgroundRelease {
		if g.unawaited = e.unawaited.Add(1) <= manyUnawaited; !g.unawaited {
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
			h.lease.mu.Lock()
			for i := range releases {
				giveInBackground(h, &releases[i], heir, e.tokens.ProposalAfter(h.life.Token()))
			}
			h.lease.mu.Unlock()
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

// giveInBackground gives the hold back on one master without a caller that waits, under mu. The release is counted at
// once, so that Close sees either the hold or its releases.
func giveInBackground(h *driver, f *hold.Effect, heir *driver, floor int64) {
	if withdrawUnsent(h, f) {
		return
	}
	r := releaseOf(h, heir, f, h.e.clock.Now(), floor)
	if over := h.e.releases[f.Master].Add(&r, f.Way == hold.Together); over != nil {
		h.lease.mu.afterUnlock(over)
	}
}

// directly is giveBack on a single master, on the caller's goroutine. A request that was answered has run before the
// release. For a request that was not answered, the release leaves a tombstone if it finds no hold.
func (g *giving) directly(ctx context.Context, over <-chan struct{}, f *hold.Effect) error {
	h := g.h
	e, m := h.e, h.e.masters[0]
	now := e.clock.Now()
	r := part{Release: releaseOf(h, g.heir, f, now, 0), m: m}
	var array [2]string
	var room [3]string
	script, args := e.scripts.of(m).releaseOf(r.Plain), r.Request(now).Args(room[:0])
	within, limit := ctx, e.cfg.ReleaseTimeout
	if over != nil {
		bounded, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		within, limit = bounded, 0
	}
	result, sent := m.Do(within, limit, script, e.keys.ForCall(array[:0], r.Key), wire.Vote{}, args)
	if over != nil && result.NonRedisError() != nil && within.Err() != nil {
		silence := &transport.NoReply{After: e.clock.Now().Mono - sent.Mono}
		if ctx.Err() != nil { // not a failure of the master, so no backoff delays other releases
			pending := r.Release
			if over := e.releases[m.Index].Add(&pending, true); over != nil {
				over()
			}
			return g.unreleased(lockerr.NodeFailures{lockerr.OfMaster(m, r.Key, silence)}, 0)
		}
		result = rueidis.NewErrorResult(silence)
	}
	switch had, failure := r.answered(e.releases[m.Index], result, sent); {
	case had:
		return nil
	case failure == nil:
		return g.wasGone()
	default:
		return g.unreleased(lockerr.NodeFailures{*failure}, 0)
	}
}

// calls makes the releases, for the caller to post. All masters get one token floor for the tokens that hand-offs mint.
// Several masters grant the next holder at this moment, and its token needs no raise if they mint the same one.
func (g *giving) calls(releases []hold.Effect, calls postings) postings {
	h := g.h
	e, lock := h.e, h.key
	keys, now, floor := e.keys.ForCall(nil, lock), e.clock.Now(), e.tokens.ProposalAfter(h.life.Token())
	var args []string // mostly the same for all masters
	var last *part
	for i := range releases {
		f := &releases[i]
		if withdrawUnsent(h, f) {
			continue
		}
		r := &g.parts[f.Master]
		*r = part{Release: releaseOf(h, g.heir, f, now, floor), g: g, m: e.masters[f.Master]}
		if g.unawaited {
			r.onAnswer = e.releases[f.Master].Leaving.Add(lock)
		}
		if last == nil || r.Tombstone != last.Tombstone || r.Outrun != last.Outrun {
			last, args = r, r.Request(now).Args(make([]string, 0, 4))
		}
		calls = append(calls, r.posting(keys, args))
	}
	for i := range g.parts {
		if g.parts[i].g == nil { // that master has let go of the hold
			g.count(i, false, nil)
		}
	}
	return calls
}

// releaseOf returns the release of a hold on one master. The node timeout covers a call that is still on its way.
func releaseOf(h, heir *driver, f *hold.Effect, now clock.Instant, floor int64) releases.Release {
	r := releases.Release{
		Key: h.key, Hold: h.id, Until: now.Add(f.Keep + h.e.cfg.NodeTimeout), Floor: floor,
		Plain: h.mode == fencing.Write && (h.extra == nil || h.extra.owner == "" && h.extra.shared.block == 0),
	}
	if heir != nil {
		r.Heir = heir
	}
	if f.At > 0 {
		r.Minimum = releases.Minimum{Least: h.terms.MinHold, Until: f.At}
	}
	if f.Outrun > 0 {
		r.Outrun = wire.Outrun{Token: f.Token, Grant: f.Outrun}
	}
	if f.TTL > 0 {
		again := h.e.masters[f.Master].SendsAgain()
		r.Tombstone = wire.Tombstone{TTL: wire.FormatMillis(f.TTL), Strays: f.Strays, Again: again}
	}
	return r
}

// withdrawUnsent takes the request for the hold back if it still waits in this process, and reports whether it did.
// Then that master needs no release. A server stands still, say, and 1,000 attempts end: most of their requests have
// not left.
func withdrawUnsent(h *driver, f *hold.Effect) bool {
	return f.Unsent && h.e.masters[f.Master].Withdraw(h.key, h.id)
}

// part is the release on one master of a giving that counts the answer.
type part struct {
	releases.Release
	g        *giving // nil for a single master's caller, which then needs no memory of the heap
	m        *transport.Master
	onAnswer func() // sends the single attempts that wait for the answer; nil if none may wait
	isOver   bool   // it is counted; under the mutex of g
}

func (r *part) posting(keys, args []string) posting {
	return posting{r.m, transport.Call{
		Script: r.g.h.e.scripts.of(r.m).releaseOf(r.Plain), Keys: keys, Vote: r.m.Vote(r.Floor), Args: args,
		To: r, Urgent: true, AnyServer: r.g.by != adopting,
	}}
}

func (s *scriptSet) releaseOf(plain bool) *transport.Script {
	if plain {
		return s.plainRelease
	}
	return s.release
}

func (r *part) Receive(result rueidis.RedisResult, sent clock.Instant) {
	had, failure := r.answered(r.g.h.e.releases[r.m.Index], result, sent)
	if r.onAnswer != nil {
		r.onAnswer()
	}
	r.g.count(r.m.Index, had, failure)
}

// answered applies the answer. A release that failed is retried in the background.
func (r *part) answered(
	queues *releases.Queues, result rueidis.RedisResult, sent clock.Instant,
) (had bool, failure *lockerr.NodeFailure) {
	m := r.m
	reply, err := wire.ReadRelease(result)
	if err != nil {
		again := r.Release
		retry := func() { queues.Retry(&again, err) }
		if r.g == nil || r.g.by != adopting || !r.g.postpone(retry) {
			retry()
		}
		failed := lockerr.OfMaster(m, r.Key, m.Explain(err))
		return false, &failed
	}
	m.Sample(r.Key, sent, reply.Micros)
	queues.Confirmed(&r.Release, reply)
	return reply.Was == wire.WasGranted, nil
}

func (g *giving) count(master int, had bool, failure *lockerr.NodeFailure) {
	g.mu.Lock()
	g.parts[master].isOver = true
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
	e.pending.add(-1)
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
	case *lockerr.Loss:
		h.e.observers.lost(h, err)
	case *lockerr.Error:
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
func (g *giving) wasGone() *lockerr.Loss {
	h := g.h
	return &lockerr.Loss{Name: h.name, Token: h.life.Token(), Reason: lockerr.Taken}
}

// unreleased returns the error of a release that fewer masters than a quorum have confirmed.
func (g *giving) unreleased(failures lockerr.NodeFailures, got int) *lockerr.Error {
	h := g.h
	kind, forGood := failures.Refusal(h.e.masters)
	return &lockerr.Error{
		Op: lockerr.OpRelease, Kind: kind, Unknown: !forGood, Name: h.name, Need: h.e.masters.quorum(), Got: got,
		Nodes: failures,
	}
}

// causes returns the masters that failed and the masters that are silent so far, under g.mu. The silence is given as
// the release timeout, which is right for Release and Adopt, the only callers that use it.
func (g *giving) causes() lockerr.NodeFailures {
	all, e := slices.Clone(g.failures), g.h.e
	for i, m := range e.masters {
		if !g.parts[i].isOver {
			all = append(all, lockerr.OfMaster(m, g.h.key, &transport.NoReply{After: e.cfg.ReleaseTimeout}))
		}
	}
	slices.SortFunc(all, func(a, b lockerr.NodeFailure) int { return cmp.Compare(a.Index, b.Index) })
	return all
}

// postpone keeps a release of an adoption that has failed, and reports whether it did: it is repeated only if the
// adoption succeeds, since otherwise another process may adopt the hold.
func (g *giving) postpone(retry func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.taken {
		g.postponed = append(g.postponed, retry)
	}
	return !g.taken
}
