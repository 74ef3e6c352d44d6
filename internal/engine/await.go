package engine

import (
	"context"
	"time"

	"github.com/seed74116694/fencelock/internal/ballot"
	"github.com/seed74116694/fencelock/internal/joined"
	"github.com/seed74116694/fencelock/internal/transport"
)

// await returns when the lease is held or the acquisition has failed. It never decides by itself that a lock was
// granted: only a verdict of the ballot, the end of ctx or the close of the engine ends it.
func (a *acquisition) await(ctx context.Context) error {
	ready := a.untilReady()
	if ready == nil {
		return a.outcome()
	}
	// The wait for a single master lasts as long as the caller waits: no other master could decide without it.
	if len(a.lease.e.masters) == 1 {
		select {
		case <-ready:
		case <-ctx.Done():
			a.cancel(ctx)
		}
		return a.outcome()
	}
	// With several masters, the silent ones must not determine how long every caller waits.
	timeout := time.NewTimer(a.lease.e.cfg.NodeTimeout)
	defer timeout.Stop()
	for {
		select {
		case <-ready:
			return a.outcome()
		case <-ctx.Done():
			a.cancel(ctx)
			return a.outcome()
		case <-a.asked:
			timeout.Reset(a.lease.e.cfg.NodeTimeout)
		case <-timeout.C:
			a.withoutLate()
		}
	}
}

// withoutLate draws the verdict without the masters that have not answered within the node timeout. Their later answers
// still count.
func (a *acquisition) withoutLate() {
	l := a.lease
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.phase != asking {
		return
	}
	// Late does not change a vote that has been answered.
	for i := range l.ballot.Votes().Masters() {
		l.ballot.Vote(i).Late(&transport.NoReply{After: l.e.cfg.NodeTimeout})
	}
	a.decide()
}

// untilReady returns a channel that is closed at the end of asking, or nil if asking has ended.
func (a *acquisition) untilReady() <-chan struct{} {
	a.lease.mu.Lock()
	defer a.lease.mu.Unlock()
	// The channel is made only for a caller that has to wait: most acquisitions are over when their request returns.
	if a.lease.phase == asking {
		a.ready = make(chan struct{})
	}
	return a.ready
}

// cancel gives the acquisition up because ctx has ended. A grant that came before wins: then phase is held, and the
// caller gets its lease although its context is over. The kind is Contended if other holds have the lock and NoQuorum
// if the lock could not be asked for, by the votes at this moment.
func (a *acquisition) cancel(ctx context.Context) {
	l := a.lease
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.phase == asking {
		if a.waiting {
			for _, w := range l.e.waiters {
				w.hear(a)
			}
		}
		a.giveUp(a.failure(kinds[l.ballot.Votes().WaitFailure()], joined.EndOf(ctx)))
	}
}

// outcome returns the result after the end of asking. The caller is woken while the goroutine that ended asking still
// holds mu, before the lease has begun. Once outcome has mu, the lease has begun. A plain return of failed would be a
// non-nil error also where failed is nil.
func (a *acquisition) outcome() error {
	a.lease.mu.Lock()
	defer a.lease.mu.Unlock()
	if a.failed != nil {
		return a.failed
	}
	return nil
}

// keepErrors keeps the errors of the masters for a hold that is given up, under mu. Until the masters have answered for
// the next hold, these are the best explanation why there is no lease.
func (a *acquisition) keepErrors() {
	a.errs = make([]error, a.lease.ballot.Votes().Masters())
	for i := range a.errs {
		a.errs[i] = a.lease.ballot.Vote(i).Err
	}
}

// failure describes why no lease came about, under mu. It names every master that gave a cause and every master that
// had not answered when ctx ended. Unknown reports that a request may still run. Its release then goes on in the
// background.
func (a *acquisition) failure(kind Kind, cause error) *Failure {
	l := a.lease
	waited := l.e.clock.Now().Mono - l.begun
	f := &Failure{
		Kind: kind, Name: l.name, Mode: l.mode, Attempts: a.asks, Waited: waited, Holder: a.holder, Err: cause,
		Need: l.ballot.Votes().Quorum(),
	}
	for i, m := range l.e.masters {
		v := l.ballot.Vote(i)
		failed := func(err error) {
			f.Nodes = append(f.Nodes, NodeFailure{Index: i, Addr: m.At(l.key.lock()).Addr(), Err: err})
		}
		f.Unknown = f.Unknown || v.Unanswered()
		// The master's error for the previous hold is used if it has not answered for this one, or has granted this one
		// too with another token than the other masters.
		disagrees := kind == NoQuorum && v.State == ballot.Granted
		if v.Err == nil && (v.State == ballot.Unasked || v.State == ballot.Asked || disagrees) && a.errs != nil {
			v.Err = a.errs[i]
		}
		switch {
		case v.Err != nil:
			failed(v.Err)
		case cause != nil && v.State == ballot.Asked:
			failed(&transport.NoReply{After: waited})
		}
	}
	f.Got = l.ballot.Votes().Answers()
	return f
}
