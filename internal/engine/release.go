package engine

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/transport"
)

// Release gives the lock back. It ignores ctx's end, keeps its values, and waits at most the release timeout for a
// quorum to confirm; what is not confirmed by then is pursued in the background. It returns nil for a lease released
// before, the *Loss of one that was lost, and *Unconfirmed.
func (l *Lease) Release(ctx context.Context) error {
	l = l.lock()
	l.expire(l.e.clock.Now())
	// A release after a release is none; one after a loss says so each time.
	if l.phase != held {
		defer l.mu.Unlock()
		if l.ending.err == ErrReleased {
			return nil
		}
		return l.ending.err
	}
	l.e.unconfirmed.add(+1) // before the registry forgets the lease, so that Close sees the one or the other
	defer l.e.unconfirmed.add(-1)
	l.e.observers.released(l)
	l.finish(ErrReleased)
	// The lease has ended before the request leaves: nobody takes it for trusted while another is let in.
	l.mu.Unlock()
	err := l.giveBack(ctx)
	if pending, ok := err.(*Unconfirmed); ok {
		l.e.observers.warn("release not confirmed, trying again in the background",
			slog.String("lock", l.name), slog.Uint64("token", uint64(l.token)), slog.Any("error", pending))
	}
	return err
}

// giveBack sends the release to all masters and waits for its verdict. A master that does not answer is left to the
// background.
func (v *voting) giveBack(ctx context.Context) error {
	if len(v.e.masters) == 1 {
		votes := releaseVotes{need: 1, all: 1}
		votes.count(v.giveBackTo(ctx, v.e.masters[0]))
		return votes.verdict(v)
	}
	// It outlives this call: answers may come after the timeout.
	votes := &releaseVotes{need: v.e.quorum(), all: len(v.e.masters), certain: make(chan struct{})}
	v.postReleases(votes)
	timeout := time.NewTimer(v.e.cfg.ReleaseTimeout)
	defer timeout.Stop()
	select {
	case <-votes.certain:
	case <-timeout.C:
	}
	return votes.verdict(v)
}

// giveBackTo releases the hold on a single master, on the caller's goroutine.
func (v *voting) giveBackTo(ctx context.Context, m *transport.Master) (had bool, failure *NodeFailure) {
	v.mu.Lock()
	r := v.releaseOn(m) // answers may still come in
	v.mu.Unlock()
	// The end of the caller's context is no reason to keep a lock that nobody uses any more.
	bounded := m.Detached(ctx, v.e.cfg.ReleaseTimeout)
	defer bounded.Stop()
	args := [...]string{m.Vote(0), r.hold, r.tombstone.ms, r.tombstone.found}
	result, sent := m.Do(bounded, v.e.scripts.Load().release, r.keys, args[:])
	if result.NonRedisError() != nil && bounded.Err() != nil {
		result = rueidis.NewErrorResult(&transport.NoReply{After: v.e.clock.Now().Mono - sent.Mono})
	}
	return v.e.released(r, result, sent)
}

// postReleases releases the hold on each of several masters, with one proposal for the tokens that hand-offs mint.
func (v *voting) postReleases(votes *releaseVotes) {
	proposal := v.e.tokens.proposal()
	v.mu.Lock()
	defer v.mu.Unlock()
	for i, m := range v.e.masters {
		// A master that cannot have anything of the hold has let go of it.
		if !v.ballot.Vote(i).Live() {
			v.mu.afterUnlock(func() { votes.count(false, nil) })
			continue
		}
		r := v.releaseOn(m)
		args := []string{m.Vote(proposal), r.hold, r.tombstone.ms, r.tombstone.found}
		call := transport.Call{Script: v.e.scripts.Load().release, Keys: r.keys, Args: args, Urgent: true}
		call.Done = func(result rueidis.RedisResult, sent clock.Instant) { votes.count(v.e.released(r, result, sent)) }
		v.mu.afterUnlock(func() { m.Post(call) })
	}
}

// The statuses of release.lua.
const (
	releaseGone    = 0
	releaseGranted = 1
)

// released reads the reply to a release. One that failed goes on in the background.
func (e *Engine) released(
	r pendingRelease, result rueidis.RedisResult, sent clock.Instant,
) (had bool, failure *NodeFailure) {
	var reply [3]int64
	if err := readInts(result, reply[:]); err != nil {
		pending := r
		e.releases[r.m.Index].retry(&pending, err)
		return false, &NodeFailure{Index: r.m.Index, Addr: r.m.At(r.keys[0]).Addr(), Err: err}
	}
	r.m.Sample(r.keys[0], sent, reply[1])
	e.releases[r.m.Index].confirmed(&r)
	if reply[2] == 1 {
		e.continueAdmission(r.m, r.keys)
	}
	return reply[0] == releaseGranted, nil
}

// releaseVotes counts the masters' answers to a release.
type releaseVotes struct {
	need, all int
	certain   chan struct{} // closed when more answers change nothing; nil for a single master
	decided   bool

	mu          sync.Mutex
	had, hadNot int
	failures    []NodeFailure
}

// count takes in one answer. The verdict is certain when the answers to come can change neither of its two parts: that
// a quorum let go, and that a quorum had nothing to let go of.
func (v *releaseVotes) count(had bool, failure *NodeFailure) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case failure != nil:
		v.failures = append(v.failures, *failure)
	case had:
		v.had++
	default:
		v.hadNot++
	}
	open := v.all - v.had - v.hadNot - len(v.failures)
	if v.released() && v.hadNot+open < v.need || v.lost() || open == 0 {
		if !v.decided && v.certain != nil {
			close(v.certain)
		}
		v.decided = true
	}
}

// released reports whether a quorum has the hold no more, and so may let others in.
func (v *releaseVotes) released() bool { return v.had+v.hadNot >= v.need }

// lost reports whether a quorum did not have the hold any more when the release came: it was no lock by then.
func (v *releaseVotes) lost() bool { return v.hadNot >= v.need }

// verdict is a *Loss where it was no lock any more when the release came: whoever relied on it has to know. Conflict
// means that no quorum can release it, since so many keys hold something else.
func (v *releaseVotes) verdict(of *voting) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.lost():
		return &Loss{Name: of.name, Token: of.token, Reason: Taken}
	case v.released():
		return nil
	}
	u := &Unconfirmed{Name: of.name, Need: v.need, Got: v.had + v.hadNot, Nodes: v.failures}
	conflicts := 0
	for _, f := range v.failures {
		if transport.Conflict(f.Err) {
			conflicts++
		}
	}
	u.Conflict = conflicts > v.all-v.need
	return u
}
