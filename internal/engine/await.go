package engine

import (
	"context"
	"time"

	"github.com/seed74116694/fencelock/internal/ballot"
	"github.com/seed74116694/fencelock/internal/joined"
	"github.com/seed74116694/fencelock/internal/transport"
)

// await returns when the lease is held or the acquisition has failed. It never decides by itself that a lock was
// granted: what ends it is a verdict of the ballot, the end of ctx, or of the engine.
func (a *acquisition) await(ctx context.Context) error {
	ready := a.untilReady()
	if ready == nil {
		return a.outcome()
	}
	// A single master is waited for as long as the caller waits: there is no other that could decide without it.
	if len(a.lease.e.masters) == 1 {
		select {
		case <-ready:
		case <-ctx.Done():
			a.cancel(ctx)
		}
		return a.outcome()
	}
	// Of several masters those that are silent must not decide how long everybody waits.
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

// withoutLate lets the verdict fall without those masters that have not answered within the node timeout. What they say
// later still counts.
func (a *acquisition) withoutLate() {
	l := a.lease
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.phase != asking {
		return
	}
	// Late does nothing to a vote that has been answered.
	for i := range l.ballot.Votes().Masters() {
		l.ballot.Vote(i).Late(&transport.NoReply{After: l.e.cfg.NodeTimeout})
	}
	a.decide()
}

// untilReady returns what is closed at the end of asking, or nil if that has come.
func (a *acquisition) untilReady() <-chan struct{} {
	a.lease.mu.Lock()
	defer a.lease.mu.Unlock()
	// The channel is made only where somebody has to wait: most acquisitions are over when their request returns.
	if a.lease.phase == asking {
		a.ready = make(chan struct{})
	}
	return a.ready
}

// cancel gives the acquisition up because ctx has ended. A grant that came in the meantime wins: then phase is held,
// and the caller gets its lease although its context is over. Contended and NoQuorum tell a lock that others hold from
// one that could not be asked for, as the votes stand at this moment.
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

// outcome is for after the end of asking. The caller has been woken while the one who ended it still held mu, and the
// lease had yet to begin: under mu it has begun. A plain return of failed would be an error that is not nil.
func (a *acquisition) outcome() error {
	a.lease.mu.Lock()
	defer a.lease.mu.Unlock()
	if a.failed != nil {
		return a.failed
	}
	return nil
}

// keepErrors keeps what the masters said of a hold that is given up, under mu: until they have said something of the
// next one, it is the best answer to why there is no lease.
func (a *acquisition) keepErrors() {
	a.errs = make([]error, a.lease.ballot.Votes().Masters())
	for i := range a.errs {
		a.errs[i] = a.lease.ballot.Vote(i).Err
	}
}

// failure describes why no lease came about, under mu. It names every master that said why, and those that said nothing
// until ctx ended. Unknown tells the caller that a request may still run; then its release goes on in the background.
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
		// What the master said of the hold before this one, if it has said nothing of this one yet, or granted it too
		// with a token that is not the others'.
		disagrees := kind == NoQuorum && v.State == ballot.Granted
		if v.Err == nil && (v.State == ballot.Unasked || disagrees) && a.errs != nil {
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
