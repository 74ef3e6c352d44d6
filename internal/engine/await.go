package engine

import (
	"context"
	"time"

	"github.com/seed74116694/fencelock/internal/ballot"
	"github.com/seed74116694/fencelock/internal/transport"
)

// await returns when the lease is held or the acquisition has failed.
func (a *acquisition) await(ctx context.Context) error {
	ready := a.untilReady()
	if ready == nil {
		return a.outcome()
	}
	if len(a.lease.e.masters) == 1 {
		select {
		case <-ready:
		case <-ctx.Done():
			a.cancel(ctx)
		}
		return a.outcome()
	}
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
	defer l.unlock()
	if l.phase != asking {
		return
	}
	for i := range l.ballot.Masters() {
		l.ballot.Late(i, &transport.NoReply{After: l.e.cfg.NodeTimeout})
	}
	a.decide()
}

// untilReady returns what is closed at the end of asking, or nil if that has come.
func (a *acquisition) untilReady() <-chan struct{} {
	a.lease.mu.Lock()
	defer a.lease.mu.Unlock()
	if a.lease.phase == asking {
		a.ready = make(chan struct{})
	}
	return a.ready
}

func (a *acquisition) cancel(ctx context.Context) {
	l := a.lease
	l.mu.Lock()
	defer l.unlock()
	if l.phase == asking {
		a.debug("cancel")
		a.giveUp(a.failure(kinds[l.ballot.Standstill()], endOf(ctx)))
	}
}

func (a *acquisition) outcome() error {
	if a.failed != nil {
		return a.failed
	}
	return nil
}

// failure describes why no lease came about, under mu.
func (a *acquisition) failure(kind Kind, cause error) *Failure {
	l := a.lease
	waited := l.e.clock.Now().Mono - l.begun.Mono
	f := &Failure{
		Kind: kind, Name: l.name, Mode: l.mode, Attempts: a.asks, Waited: waited, Holder: a.holder, Err: cause,
		Need: l.ballot.Quorum(), Got: l.ballot.Answers(),
	}
	for i, m := range l.e.masters {
		v := l.ballot.Vote(i)
		f.Unknown = f.Unknown || v.Unanswered()
		switch {
		case v.Err != nil:
			f.Nodes = append(f.Nodes, NodeFailure{Index: i, Addr: m.Addr(), Err: v.Err})
		case cause != nil && v.State == ballot.Asked:
			f.Nodes = append(f.Nodes, NodeFailure{Index: i, Addr: m.Addr(), Err: &transport.NoReply{After: waited}})
		}
	}
	return f
}
