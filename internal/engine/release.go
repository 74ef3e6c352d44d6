package engine

import (
	"context"
	"log/slog"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/transport"
)

// Release gives the lock back. It ignores the end of ctx, keeps its values, and waits at most the release timeout for a
// quorum to confirm. A release that is not confirmed by then continues in the background. Release returns nil for a
// lease that was released before, the *Loss of a lease that was lost, and *Unconfirmed.
func (l *Lease) Release(ctx context.Context) error {
	l = l.lock()
	l.expire(l.e.clock.Now())
	// A second release does nothing. A release after a loss returns the loss each time.
	if l.phase != held {
		defer l.mu.Unlock()
		if l.ending.err() == ErrReleased {
			return nil
		}
		return l.ending.err()
	}
	l.e.unconfirmed.add(+1) // before the registry forgets the lease, so that Close sees the lease or the release
	defer l.e.unconfirmed.add(-1)
	l.finish(ErrReleased)
	l.e.registry.forget(l.id)
	// The lease ends before the request leaves, so that no goroutine trusts it while another holder enters.
	l.mu.Unlock()
	// The end of the caller's context is no reason to keep a lock that is not used any more.
	within := l.e.masters[0].Detached(ctx, l.e.cfg.ReleaseTimeout)
	defer within.Stop()
	err := l.giveBack(within, context.Background())
	if u, ok := err.(*Unconfirmed); ok {
		l.warnOf(u)
	}
	return err
}

// warnOf logs the error that Release returns. The log and the error agree on whether the release continues.
func (v *voting) warnOf(u *Unconfirmed) {
	message := "release not confirmed, trying again in the background"
	if u.Refused {
		message = "release refused, the hold ends with its TTL"
	}
	v.e.observers.warn(message,
		slog.String("lock", v.name), slog.Uint64("token", uint64(v.token())), slog.Any("error", u))
}

// ReleaseWithin ends a lease that is held, as Release does, and waits until a quorum has confirmed the release or ctx
// ends, and at most for the release timeout. It is for callers that do not need the result and have set a time limit
// themselves.
func (e *Engine) ReleaseWithin(ctx context.Context, l *Lease) {
	l = l.lock()
	l.expire(e.clock.Now())
	if l.phase != held {
		l.mu.Unlock()
		return
	}
	e.unconfirmed.add(+1) // as in Release
	defer e.unconfirmed.add(-1)
	l.finish(ErrReleased)
	l.e.registry.forget(l.id)
	l.mu.Unlock()
	_ = l.giveBackWithin(ctx)
}

// ReleaseSoon ends a lease that is held, as Release does, and gives the lock back in the background. It is for callers
// that must not wait: a timer, or a goroutine that only unlocks. The lease has ended when ReleaseSoon returns, so
// nothing in this process relies on it while another holder enters. Releases that are not confirmed are retried until
// the hold has expired.
func (e *Engine) ReleaseSoon(l *Lease) {
	l = l.lock()
	defer l.mu.Unlock()
	l.expire(l.e.clock.Now())
	if l.phase == held {
		l.finish(ErrReleased)
		l.releaseAtOnce(e.announce(l.key.lock()))
	}
}

// giveBackWithin gives back a hold that is not needed any more, and waits until that is done. After that, the next
// request of this process does not meet a hold of its own, and a waiter elsewhere that needed a downgrade has entered.
// The caller has what it asked for, or continues to ask for it, without that wait. Unlike Release, giveBackWithin
// therefore does not wait beyond the end of ctx: the release then continues in the background, and Close waits for it.
func (v *voting) giveBackWithin(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, v.e.cfg.ReleaseTimeout)
	defer cancel()
	return v.giveBack(within, ctx)
}

// giveBack sends the release to all masters and waits for its verdict until ctx ends. Releases of masters that have not
// answered by then continue in the background. If caller has ended, a master that has not answered does not count as
// failed.
func (v *voting) giveBack(ctx, caller context.Context) error {
	if len(v.e.masters) == 1 {
		count := releaseCount{need: 1, all: 1}
		count.add(v.giveBackTo(ctx, caller, v.e.masters[0]))
		return count.verdict(v)
	}
	// votes outlives this call, because answers may arrive after the end of ctx.
	votes := newReleaseVotes(v.e)
	v.postReleases(votes)
	select {
	case <-votes.certain:
	case <-ctx.Done():
	}
	return votes.verdict(v)
}

// giveBackTo releases the hold on a single master, on the caller's goroutine. A request that was answered has run
// before the release. For a request that was not answered, the release leaves a tombstone if it finds no hold.
func (v *voting) giveBackTo(ctx, caller context.Context, m *transport.Master) (had bool, failure *NodeFailure) {
	v.mu.Lock()
	r := v.releaseOn(m) // answers may still arrive
	v.mu.Unlock()
	keys := v.e.keys.all(r.key)
	args := [...]string{m.Vote(0), r.hold, r.tombstone.ms, r.tombstone.found}
	result, sent := m.Do(ctx, v.e.scriptsOf(m).release, v.e.keys.ofScript(&keys), args[:])
	if result.NonRedisError() != nil && ctx.Err() != nil {
		silence := &transport.NoReply{After: v.e.clock.Now().Mono - sent.Mono}
		if caller.Err() != nil { // not a failure of the master, so no backoff delays other releases
			pending := r
			v.e.unconfirmed.add(+1)
			v.e.releases[m.Index].add(&pending)
			return false, &NodeFailure{Index: m.Index, Addr: m.At(r.key.lock()).Addr(), Err: silence}
		}
		result = rueidis.NewErrorResult(silence)
	}
	return v.e.released(r, result, sent)
}

// postReleases releases the hold on each of several masters, with one token floor for the tokens that hand-offs mint.
// All masters grant the next holder at this moment, and its token needs no raise if they mint the same one.
func (v *voting) postReleases(votes *releaseVotes) {
	keys := v.e.keys.forCall(v.key)
	v.mu.Lock()
	defer v.mu.Unlock()
	proposal := v.e.tokens.proposalAfter(v.token())
	count := votes.count
	for i, m := range v.e.masters {
		// A master that cannot have any state of the hold has let go of it.
		if !v.ballot.Vote(i).Live() {
			v.mu.afterUnlock(func() { count(i, false, nil) })
			continue
		}
		v.postRelease(m, keys, proposal, count)
	}
}

// postRelease posts the release to one master, under mu. done is called without mu when the master has answered or
// failed to.
func (v *voting) postRelease(
	m *transport.Master, keys []string, proposal int64, done func(master int, had bool, failure *NodeFailure),
) {
	r := v.releaseOn(m)
	args := []string{m.Vote(proposal), r.hold, r.tombstone.ms, r.tombstone.found}
	call := transport.Call{Script: v.e.scriptsOf(m).release, Keys: keys, Args: args, Urgent: true}
	call.Done = func(result rueidis.RedisResult, sent clock.Instant) {
		had, failure := v.e.released(r, result, sent)
		done(m.Index, had, failure)
	}
	v.mu.afterUnlock(func() { m.Post(call) })
}

// releaseAtOnce releases all that any master may have of this hold, under mu, and removes the hold from the registry.
// left ends the announcements of the release, one for each master. Single attempts of this process wait for the
// answers, so the releases do not wait for a probe, as those of releaseInBackground do. Only the release to a server
// that does not answer does, and no attempt waits for it: the attempt fails at once, as it would without the release.
func (v *voting) releaseAtOnce(left []func()) {
	keys, proposal := v.e.keys.forCall(v.key), v.e.tokens.proposalAfter(v.token())
	for i, m := range v.e.masters {
		switch {
		case !v.ballot.Vote(i).Live():
			v.mu.afterUnlock(left[i])
			continue
		case m.At(v.key.lock()).Failing():
			v.queueRelease(m)
			v.mu.afterUnlock(left[i])
			continue
		}
		v.e.unconfirmed.add(+1) // before the registry forgets the hold, so that Close sees one of the two
		v.postRelease(m, keys, proposal, func(int, bool, *NodeFailure) {
			v.e.unconfirmed.add(-1)
			left[i]()
		})
	}
	v.e.registry.forget(v.id)
}

// The statuses of release.lua.
const (
	releaseGone    = 0
	releaseGranted = 1
)

// released reads the reply to a release. A release that failed is retried in the background until the hold has expired.
// It may have run: the second run then finds the hold gone, and touches no other hold.
func (e *Engine) released(
	r pendingRelease, result rueidis.RedisResult, sent clock.Instant,
) (had bool, failure *NodeFailure) {
	var reply [3]int64
	if err := readInts(result, reply[:]); err != nil {
		pending := r
		e.releases[r.m.Index].retry(&pending, err)
		return false, &NodeFailure{Index: r.m.Index, Addr: r.m.At(r.key.lock()).Addr(), Err: r.m.Explain(err)}
	}
	r.withdrawal.end()
	r.m.Sample(r.key.lock(), sent, reply[1])
	e.releases[r.m.Index].confirmed(&r)
	if reply[2] != 0 {
		e.goOn(r.m, e.keys.forCall(r.key), reply[2])
	}
	return reply[0] == releaseGranted, nil
}
