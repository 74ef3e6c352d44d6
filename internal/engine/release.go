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
	l.mu.Lock()
	l.expire(l.e.clock.Now())
	if l.phase != held {
		defer l.unlock()
		if l.end == ErrReleased {
			return nil
		}
		return l.end
	}
	l.e.unreleased(+1) // before the registry forgets the lease, so that Close sees the one or the other
	defer l.e.unreleased(-1)
	l.tellReleased()
	l.finish(ErrReleased)
	l.unlock()
	err := l.giveBack(ctx)
	if pending, ok := err.(*Unconfirmed); ok {
		l.e.warn("release not confirmed, trying again in the background",
			slog.String("lock", l.name), slog.Uint64("token", uint64(l.token)), slog.Any("error", pending))
	}
	return err
}

// giveBack sends the release to all masters and waits for its verdict. A master that does not answer is left to the
// background.
func (l *Lease) giveBack(ctx context.Context) error {
	if len(l.e.masters) == 1 {
		votes := releaseVotes{need: 1, all: 1}
		votes.count(l.giveBackTo(ctx, l.e.masters[0]))
		return votes.verdict(l)
	}
	votes := &releaseVotes{need: l.e.quorum(), all: len(l.e.masters), certain: make(chan struct{})}
	l.postReleases(votes)
	timeout := time.NewTimer(l.e.cfg.ReleaseTimeout)
	defer timeout.Stop()
	select {
	case <-votes.certain:
	case <-timeout.C:
	}
	return votes.verdict(l)
}

// giveBackTo releases the hold on a single master, on the caller's goroutine.
func (l *Lease) giveBackTo(ctx context.Context, m *transport.Master) (had bool, failure *NodeFailure) {
	l.mu.Lock()
	r := l.releaseOn(m) // answers may still come in
	l.mu.Unlock()
	bounded := m.Detached(ctx, l.e.cfg.ReleaseTimeout)
	defer bounded.Stop()
	args := [...]string{m.Vote(0), r.hold, r.tombstone.ms, r.tombstone.found}
	result, sent := m.Do(bounded, l.e.scripts.Load().release, r.keys, args[:])
	if result.NonRedisError() != nil && bounded.Err() != nil {
		result = rueidis.NewErrorResult(&transport.NoReply{After: l.e.clock.Now().Mono - sent.Mono})
	}
	return l.e.released(r, result, sent)
}

// postReleases releases the hold on each of several masters, with one proposal for the tokens that hand-offs mint.
func (l *Lease) postReleases(votes *releaseVotes) {
	proposal := l.e.proposal()
	l.mu.Lock()
	defer l.unlock()
	for i, m := range l.e.masters {
		if !l.ballot.Vote(i).Live() {
			l.afterUnlock(func() { votes.count(false, nil) })
			continue
		}
		r := l.releaseOn(m)
		args := []string{m.Vote(proposal), r.hold, r.tombstone.ms, r.tombstone.found}
		call := transport.Call{Script: l.e.scripts.Load().release, Keys: r.keys, Args: args, Urgent: true}
		call.Done = func(result rueidis.RedisResult, sent clock.Instant) { votes.count(l.e.released(r, result, sent)) }
		l.afterUnlock(func() { m.Post(call) })
	}
}

// The statuses of release.lua.
const (
	releaseGone    = 0
	releaseGranted = 1
)

// released reads the reply to a release. One that failed goes on in the background.
func (e *Engine) released(r pendingRelease, result rueidis.RedisResult, sent clock.Instant) (had bool, failure *NodeFailure) {
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

func (v *releaseVotes) verdict(l *Lease) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.lost():
		return &Loss{Name: l.name, Token: l.token, Reason: Taken}
	case v.released():
		return nil
	}
	u := &Unconfirmed{Name: l.name, Need: v.need, Got: v.had + v.hadNot, Nodes: v.failures}
	conflicts := 0
	for _, f := range v.failures {
		if transport.Conflict(f.Err) {
			conflicts++
		}
	}
	u.Conflict = conflicts > v.all-v.need
	return u
}
