package engine

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/internal/wire"
)

// Release gives the lock back. It ignores the end of ctx, keeps its values, and waits at most the release timeout for a
// quorum to confirm. A release that is not confirmed by then continues in the background. Release returns nil for a
// lease that was released before, the *Loss of a lease that was lost, and *Error. With Terms.BackgroundRelease it posts
// the release and returns nil: what the masters answer goes to the hooks and to the logger.
func (l *Lease) Release(ctx context.Context) error {
	h, over := l.endByHolder()
	if h == nil {
		return over
	}
	defer h.e.unconfirmed.add(-1)
	if h.postRelease() {
		return nil
	}
	err := h.giveBackInTime(ctx)
	if failed, ok := err.(*Error); ok {
		h.warnOf(failed)
	}
	return err
}

// giveBackInTime is giveBack within the release timeout. The end of the caller's context is no reason to keep a lock
// that is not used any more.
func (h *hold) giveBackInTime(ctx context.Context) error {
	if len(h.e.masters) == 1 {
		within := h.e.masters[0].Detached(ctx, h.e.cfg.ReleaseTimeout)
		defer within.Stop()
		return h.giveBack(within, context.Background())
	}
	timeout := h.e.timeouts.start(h.e.cfg.ReleaseTimeout)
	defer h.e.timeouts.stop(timeout)
	votes := newReleaseVotes(h.e, doesNotHave)
	h.releasesTo(votes, make(postings, 0, fewMasters)).post()
	return votes.await(context.Background(), timeout.C, h)
}

// ReleaseAll is Release for several leases, without the values of a context. The releases to one server are sent
// together, and the release timeout is for all.
func (e *Engine) ReleaseAll(leases []*Lease) []error {
	errs := make([]error, len(leases))
	all, votes := make([]*hold, len(leases)), make([]*releaseVotes, len(leases))
	calls := make([][]transport.Call, len(e.masters))
	for i, l := range leases {
		h, over := l.endByHolder()
		if h == nil {
			errs[i] = over
			continue
		}
		defer e.unconfirmed.add(-1)
		if votes[i] = h.backgroundVotes(); votes[i] == nil {
			all[i], votes[i] = h, newReleaseVotes(e, doesNotHave)
		}
		for _, p := range h.releasesTo(votes[i], nil) {
			calls[p.m.Index] = append(calls[p.m.Index], p.call)
		}
	}
	for i, m := range e.masters {
		m.PostAll(calls[i])
	}
	within, cancel := context.WithTimeout(context.Background(), e.cfg.ReleaseTimeout)
	defer cancel()
	for i, h := range all {
		if h == nil {
			continue
		}
		errs[i] = votes[i].await(within, nil, h)
		if failed, ok := errs[i].(*Error); ok {
			h.warnOf(failed)
		}
	}
	return errs
}

// endByHolder ends a lease that is held, counts its release as unconfirmed and returns its hold, for the caller to
// give back. Otherwise it returns what Release returns: nil if the lease was released before, and its *Loss each time.
func (l *Lease) endByHolder() (h *hold, over error) {
	h = l.lock()
	defer l.mu.Unlock()
	if !h.stillHeld() {
		if over = l.done.err(); over == ErrReleased {
			over = nil
		}
		return nil, over
	}
	h.e.unconfirmed.add(+1) // before the registry forgets the lease, so that Close sees the lease or the release
	h.finish(ErrReleased)
	h.e.registry.forget(h.id)
	// The lease ends before the request leaves, so that no goroutine trusts it while another holder enters.
	return h, nil
}

// warnOf counts and logs the error that Release returns. The log and the error agree on whether the release continues.
func (h *hold) warnOf(failed *Error) {
	h.e.counters.unconfirmed.Add(1)
	message := "release not confirmed, trying again in the background"
	if !failed.Unknown {
		message = "release refused, the hold ends with its TTL"
	}
	h.e.observers.warn(message,
		slog.String("lock", h.name), slog.Uint64("token", uint64(h.token())), slog.Any("error", failed))
}

// ReleaseWithin ends a lease that is held, as Release does, and waits until a quorum has confirmed the release or ctx
// ends, and at most for the release timeout. With Terms.BackgroundRelease it does not wait. It is for callers that do
// not need the result and have set a time limit themselves.
func (l *Lease) ReleaseWithin(ctx context.Context) {
	if h, _ := l.endByHolder(); h != nil {
		defer h.e.unconfirmed.add(-1)
		if !h.postRelease() {
			_ = h.giveBackWithin(ctx)
		}
	}
}

// ReleaseSoon ends a lease that is held, as Release does, and gives the lock back in the background. It is for callers
// that must not wait: a timer, or a goroutine that only unlocks. The lease has ended when ReleaseSoon returns, so
// nothing in this process relies on it while another holder enters. Releases that are not confirmed are retried until
// the hold has expired.
func (l *Lease) ReleaseSoon() {
	h := l.lock()
	defer l.mu.Unlock()
	h.releaseSoon()
}

// releaseSoon ends a hold that is held, under mu, and gives it back in the background.
func (h *hold) releaseSoon() {
	if h.stillHeld() {
		h.finish(ErrReleased)
		h.releaseAtOnce(h.e.announce(h.key.LockHash()))
	}
}

// LetGo announces the release of a lease that the process has kept and does not use. It returns a function that
// releases the lease as ReleaseSoon does. LetGo itself sends nothing. From the announcement on, single attempts of this
// process for the lock are sent to a master after its answer to the release.
func (l *Lease) LetGo() (release func()) {
	h := l.standing.Load()
	left := h.e.announce(h.key.LockHash())
	return func() {
		h := l.lock()
		defer l.mu.Unlock()
		if !h.stillHeld() {
			for _, f := range left {
				l.mu.afterUnlock(f)
			}
			return
		}
		h.finish(ErrReleased)
		h.releaseAtOnce(left)
	}
}

// giveBackWithin gives back a hold that is not needed any more, and waits until that is done. After that, the next
// request of this process does not meet a hold of its own, and a waiter elsewhere that needed a downgrade has entered.
// The caller has what it asked for, or continues to ask for it, without that wait. Unlike Release, giveBackWithin
// therefore does not wait beyond the end of ctx: the release then continues in the background, and Close waits for it.
func (h *hold) giveBackWithin(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, h.e.cfg.ReleaseTimeout)
	defer cancel()
	return h.giveBack(within, ctx)
}

// giveBack sends the release to all masters and waits for its verdict until ctx ends. Releases of masters that have not
// answered by then continue in the background. If caller has ended, a master that has not answered does not count as
// failed.
func (h *hold) giveBack(ctx, caller context.Context) error {
	if len(h.e.masters) == 1 {
		count := releaseCount{need: 1, all: 1, asks: doesNotHave}
		count.add(h.giveBackTo(ctx, caller, h.e.masters[0]))
		return count.verdict(h)
	}
	// votes outlives this call, because answers may arrive after the end of ctx.
	votes := newReleaseVotes(h.e, doesNotHave)
	h.releasesTo(votes, make(postings, 0, fewMasters)).post()
	return votes.await(ctx, nil, h)
}

// giveBackTo releases the hold on a single master, on the caller's goroutine. A request that was answered has run
// before the release. For a request that was not answered, the release leaves a tombstone if it finds no hold.
func (h *hold) giveBackTo(ctx, caller context.Context, m *transport.Master) (had bool, failure *NodeFailure) {
	h.lease.mu.Lock()
	r := h.releaseOn(m) // answers may still arrive
	h.lease.mu.Unlock()
	keys := h.e.keys.All(r.key)
	var array [3]string
	args := r.request(h.e.clock).Args(array[:0])
	result, sent := m.Do(ctx, h.e.scriptsOf(m).release, h.e.keys.OfScript(&keys), wire.Vote{}, args)
	if result.NonRedisError() != nil && ctx.Err() != nil {
		silence := &transport.NoReply{After: h.e.clock.Now().Mono - sent.Mono}
		if caller.Err() != nil { // not a failure of the master, so no backoff delays other releases
			pending, p := r, h.e.releases[m.Index]
			p.announce(&pending)
			p.add(&pending)
			return false, &NodeFailure{Index: m.Index, Addr: m.At(r.key.LockHash()).Addr(), Err: silence}
		}
		result = rueidis.NewErrorResult(silence)
	}
	return h.e.released(&r, result, sent)
}

// releasesTo appends the releases of the hold on all masters, for the caller to post. The answers go to votes. All
// masters get one token floor for the tokens that hand-offs mint. Several masters grant the next holder at this moment,
// and its token needs no raise if they mint the same one.
func (h *hold) releasesTo(votes *releaseVotes, calls postings) postings {
	keys := h.e.keys.ForCall(h.key)
	h.lease.mu.Lock()
	h.withdrawUnsent()
	proposal := h.e.tokens.proposalAfter(h.token())
	var args releaseArgs
	for i, m := range h.e.masters {
		if h.ballot.Vote(i).MayBeHeld() {
			vote := &votes.ofMaster[i]
			vote.release = h.releaseOn(m)
			call := h.releaseCall(m, keys, proposal, args.of(vote.release.request(h.e.clock)), vote)
			calls = append(calls, posting{m, call})
		}
	}
	h.lease.mu.Unlock()
	for i := range votes.ofMaster {
		// A master that cannot have any state of the hold has let go of it.
		if votes.ofMaster[i].release.m == nil {
			votes.count(i, false, nil)
		}
	}
	return calls
}

// releaseArgs are the arguments of the releases of one hold, which are mostly the same for all masters.
type releaseArgs struct {
	last wire.Release
	argv []string
}

// of returns the arguments of a release.
func (a *releaseArgs) of(r wire.Release) []string {
	if a.argv == nil || r.Tombstone != a.last.Tombstone || r.Minimum != a.last.Minimum {
		a.last, a.argv = r, r.Args(make([]string, 0, 4))
	}
	return a.argv
}

// releaseCall returns the release for one master, under mu.
func (h *hold) releaseCall(
	m *transport.Master, keys []string, proposal int64, args []string, to transport.Receiver,
) transport.Call {
	return transport.Call{
		Script: h.e.scriptsOf(m).release, Keys: keys, Vote: m.Vote(proposal), Args: args, To: to, Urgent: true,
	}
}

// releaseAtOnce releases all that any master may have of this hold, under mu, and removes the hold from the registry.
// left ends the announcements of the release, one for each master. Single attempts of this process wait for the
// answers, so the releases do not wait for a probe, as those of releaseInBackground do. Only the release to a server
// that does not answer does, and no attempt waits for it: the attempt fails at once, as it would without the release.
func (h *hold) releaseAtOnce(left []func()) {
	h.withdrawUnsent()
	keys, proposal := h.e.keys.ForCall(h.key), h.e.tokens.proposalAfter(h.token())
	for i, m := range h.e.masters {
		switch {
		case !h.ballot.Vote(i).MayBeHeld():
			h.lease.mu.afterUnlock(left[i])
			continue
		case m.At(h.key.LockHash()).Failing():
			h.queueRelease(m)
			h.lease.mu.afterUnlock(left[i])
			continue
		}
		h.e.unconfirmed.add(+1) // before the registry forgets the hold, so that Close sees one of the two
		r := h.releaseOn(m)
		answered := func(result rueidis.RedisResult, sent clock.Instant) {
			_, _ = h.e.released(&r, result, sent)
			h.e.unconfirmed.add(-1)
			left[i]()
		}
		call := h.releaseCall(m, keys, proposal, r.request(h.e.clock).Args(nil), transport.ReceiverFunc(answered))
		h.lease.mu.afterUnlock(func() { m.Post(call) })
	}
	h.e.registry.forget(h.id)
}

// announce registers a release of the lock on every master. Each function of left is called once.
func (e *Engine) announce(lock string) (left []func()) {
	left = make([]func(), len(e.masters))
	for i := range left {
		left[i] = e.leaving[i].add(lock)
	}
	return left
}

// released reads the reply to a release. A release that failed is retried in the background until the hold has expired.
// It may have run: the second run then finds the hold gone, and touches no other hold.
func (e *Engine) released(
	r *pendingRelease, result rueidis.RedisResult, sent clock.Instant,
) (had bool, failure *NodeFailure) {
	reply, err := wire.ReadRelease(transport.OfAnyServer(result))
	if err != nil {
		pending := *r
		e.releases[r.m.Index].retry(&pending, err)
		return false, &NodeFailure{Index: r.m.Index, Addr: r.m.At(r.key.LockHash()).Addr(), Err: r.m.Explain(err)}
	}
	r.withdrawal.end()
	r.m.Sample(r.key.LockHash(), sent, reply.Micros)
	e.releases[r.m.Index].confirmed(r)
	r.heir.inherit(reply.Broken)
	e.doRemaining(r.m, r.key, reply.More)
	return reply.Was == wire.WasGranted, nil
}

// releaseCount counts the masters' answers to a release. It has no mutex: the count of a single master is on the
// caller's stack.
type releaseCount struct {
	need, all   int
	asks        question
	had, hadNot int
	failures    []NodeFailure
}

// question is what a caller wants to know of the answers to a release. Answers that are enough for one question may be
// too few for another.
type question func(had, hadNot, need int) finding

type finding uint8

const (
	notKnown  finding = iota
	confirmed         // the answer to the question is yes
	gone              // a quorum no longer had the hold when the release arrived
)

// doesNotHave asks whether a quorum does not have the hold any more, and so may grant the lock to other holds. If the
// hold was gone, the lease did not protect anything by then.
func doesNotHave(had, hadNot, need int) finding {
	switch {
	case hadNot >= need:
		return gone
	case had+hadNot >= need:
		return confirmed
	default:
		return notKnown
	}
}

// hadUntilThen asks whether a quorum had the hold until it was released.
func hadUntilThen(had, hadNot, need int) finding {
	switch {
	case hadNot >= need:
		return gone
	case had >= need:
		return confirmed
	default:
		return notKnown
	}
}

func (c *releaseCount) add(had bool, failure *NodeFailure) {
	switch {
	case failure != nil:
		c.failures = append(c.failures, *failure)
	case had:
		c.had++
	default:
		c.hadNot++
	}
}

// found returns what the answers say so far.
func (c *releaseCount) found() finding { return c.asks(c.had, c.hadNot, c.need) }

// isCertain reports whether the outstanding answers cannot change what is found. What holds if all of them go one way,
// and if all go the other, holds for any mixture.
func (c *releaseCount) isCertain() bool {
	found, open := c.found(), c.all-c.had-c.hadNot-len(c.failures)
	return open == 0 || found != notKnown &&
		found == c.asks(c.had+open, c.hadNot, c.need) && found == c.asks(c.had, c.hadNot+open, c.need)
}

// verdict returns a *Loss if the hold did not stand any more when the release arrived, because the caller that relied
// on it must know.
func (c *releaseCount) verdict(of *hold) error {
	switch c.found() {
	case gone:
		of.e.suspect(of.key.LockHash())
		return &Loss{Name: of.name, Token: of.token(), Reason: Taken, by: of.e, lock: of.key.LockHash()}
	case confirmed:
		return nil
	}
	kind, forGood := of.e.refusal(c.failures)
	return &Error{
		Op: OpRelease, Kind: kind, Unknown: !forGood,
		Name: of.name, Need: c.need, Got: c.had + c.hadNot, Nodes: c.failures,
	}
}

// releaseVotes counts the answers of several masters. It outlives the call that waits for it, because answers may
// arrive after the call's timeout. Until the count is certain, the release is unconfirmed, whether the call still waits
// or not.
type releaseVotes struct {
	e          *Engine
	certain    chan struct{} // closed when further answers change nothing
	background *background   // of a release that no caller waits for, or nil

	mu       sync.Mutex // guards what follows, except the release of a releaseVote
	decided  bool       // certain is closed
	answers  releaseCount
	ofMaster []releaseVote
}

// releaseVote is the release of a hold on one master. It receives the answer.
type releaseVote struct {
	votes    *releaseVotes
	release  pendingRelease // without a master if nothing is sent to this one
	answered bool
}

func newReleaseVotes(e *Engine, asks question) *releaseVotes {
	e.unconfirmed.add(+1)
	v := &releaseVotes{
		e: e, certain: make(chan struct{}), ofMaster: make([]releaseVote, len(e.masters)),
		answers: releaseCount{need: e.quorum(), all: len(e.masters), asks: asks},
	}
	for i := range v.ofMaster {
		v.ofMaster[i].votes = v
	}
	return v
}

// Receive counts the answer.
func (o *releaseVote) Receive(result rueidis.RedisResult, sent clock.Instant) {
	had, failure := o.votes.e.released(&o.release, result, sent)
	o.votes.count(o.release.m.Index, had, failure)
}

// count counts one master's answer.
func (v *releaseVotes) count(master int, had bool, failure *NodeFailure) {
	certain := v.decides(master, had, failure)
	if b := v.background; b != nil {
		b.left[master]()
		if certain {
			v.e.inBackground.Add(-1)
			b.hold.reportRelease(v.verdict(b.hold))
		}
	}
}

// decides counts one master's answer, and reports whether it is the one that makes the count certain.
func (v *releaseVotes) decides(master int, had bool, failure *NodeFailure) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.ofMaster[master].answered = true
	v.answers.add(had, failure)
	if !v.answers.isCertain() || v.decided {
		return false
	}
	v.decided = true
	close(v.certain)
	v.e.unconfirmed.add(-1)
	return true
}

// await returns the verdict once it is certain, or at the end of ctx or of the timeout, which may be nil.
func (v *releaseVotes) await(ctx context.Context, timeout <-chan time.Time, of *hold) error {
	select {
	case <-v.certain:
	case <-timeout:
	case <-ctx.Done():
	}
	return v.verdict(of)
}

// verdict returns the verdict of the answers so far. Later answers change nothing for the caller. A release that they
// show to have failed continues in the background. If no quorum has confirmed, the masters that are still silent are
// causes too.
func (v *releaseVotes) verdict(of *hold) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	err := v.answers.verdict(of)
	if failed, ok := err.(*Error); ok {
		failed.Nodes = v.causes(of)
	}
	return err
}

// causes returns the masters that failed and the masters that are silent so far, under mu. The silence is given as the
// release timeout, which is right for Release and Adopt, the only callers that use it.
func (v *releaseVotes) causes(of *hold) NodeFailures {
	all := slices.Clone(v.answers.failures)
	for i, m := range of.e.masters {
		if !v.ofMaster[i].answered {
			silence := &transport.NoReply{After: of.e.cfg.ReleaseTimeout}
			all = append(all, NodeFailure{Index: i, Addr: m.At(of.key.LockHash()).Addr(), Err: silence})
		}
	}
	slices.SortFunc(all, func(a, b NodeFailure) int { return cmp.Compare(a.Index, b.Index) })
	return all
}

// background is what a release needs that no caller waits for: of WithBackgroundRelease.
type background struct {
	hold *hold
	left []func() // of each master: its answer lets requests go on that wait for it
}

// backgroundVotes registers the release of a hold that has ended, before it is posted. It returns nil if the caller has
// to wait for the answers: the terms say so, or so many releases have none that the servers are slower than their
// clients.
func (h *hold) backgroundVotes() *releaseVotes {
	if !h.terms.BackgroundRelease {
		return nil
	}
	if h.e.inBackground.Add(1) > releasesUnderWay {
		h.e.inBackground.Add(-1)
		return nil
	}
	votes := newReleaseVotes(h.e, doesNotHave)
	votes.background = &background{h, h.e.announce(h.key.LockHash())}
	return votes
}

// postRelease posts the release of a hold that has ended, and reports whether it did.
func (h *hold) postRelease() bool {
	votes := h.backgroundVotes()
	if votes != nil {
		h.releasesTo(votes, nil).post()
	}
	return votes != nil
}

// reportRelease reports how a release in the background has failed: the caller was told that the lease was held until
// then.
func (h *hold) reportRelease(err error) {
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
