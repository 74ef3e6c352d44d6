package masterset

import (
	"context"
	"time"

	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/internal/wire"
)

// askAll sends the requests to the masters concurrently, each from its own goroutine, so that a master that hangs
// delays no other. It waits for all answers until the first limit, after that only for a quorum, and never beyond the
// second limit. Every answer counts until the first limit. After that a quorum decides, so that a dead master costs a
// locker no more than one node timeout at its start.
func (s *Set) askAll(ctx context.Context, requests []*request) []reply {
	type answer struct {
		master int
		reply  reply
	}
	answers := make(chan answer, len(requests))
	forAll, forQuorum := s.limits()
	ctx, cancel := context.WithTimeout(ctx, forQuorum)
	defer cancel()
	replies := make([]reply, len(requests))
	open := 0
	for i, r := range requests {
		replies[i].err = &transport.NoReply{After: forQuorum} // unless it answers in time
		if r == nil {
			continue
		}
		if !s.cfg.Spawn(func() { answers <- answer{i, s.askOne(ctx, i, r)} }) {
			return replies
		}
		open++
	}
	timeout := time.NewTimer(forAll)
	defer timeout.Stop()
	for late, got := false, 0; open > 0 && (!late || got < s.view.quorum()); {
		select {
		case a := <-answers:
			replies[a.master] = a.reply
			open--
			if a.reply.err == nil {
				got++
			}
		case <-timeout.C:
			late = true
		case <-ctx.Done():
			return replies
		}
	}
	return replies
}

// limits returns how long to wait for all masters, and how long for a quorum. Neither affects safety: a master that did
// not answer in time has no vote until a later bootstrap has read its marker.
func (s *Set) limits() (forAll, forQuorum time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.usable {
		return s.cfg.NodeTimeout, s.grace
	}
	return s.grace / 2, s.grace // who answers later gets a missing marker a pass later, and so its quarantine
}

// unverified is a number of dialled connections that no client reaches. It means that the marker was read over a
// connection that is being replaced.
const unverified = ^uint64(0)

// askOne returns the answer of one master. If there are several masters, it first subscribes to the master's messages
// and prepares the connection for replicas: a connection that is opened later would invalidate the identity that the
// client has read.
func (s *Set) askOne(ctx context.Context, i int, r *request) reply {
	m, several := s.cfg.Masters[i], len(s.cfg.Masters) > 1
	if several {
		m.Listen(s.cfg.Key)
		listening := time.NewTimer(s.cfg.NodeTimeout)
		select {
		case <-m.Listened():
		case <-listening.C: // the client's pool may be exhausted by its other users
		case <-ctx.Done():
		}
		listening.Stop()
		m.Prepare(ctx)
	}
	args := r.args(s.view.rules(), Quarantine(s.cfg.LongestTTL))
	call := func() (reply, clock.Instant, uint64) {
		dials := m.Dials()
		result, sent := m.Do(ctx, s.script, []string{s.cfg.Key}, wire.Vote{}, args)
		return readReply(result), sent, dials
	}
	// The marker is valid only for the connection that it was read over. If another connection was opened during the
	// call, the answer may have come over either, and so from an unknown server: mostly the call itself has opened it.
	answer, sent, dials := call()
	if answer.err == nil && m.Dials() != dials {
		answer, sent, dials = call()
	}
	// The refusal of a cluster's node is an answer too: it shows what the master is.
	if transport.FromCluster(answer.err) && m.Standalone() {
		answer = reply{cluster: true}
	}
	if answer.dials = dials; m.Dials() != dials && answer.err == nil {
		answer.dials = unverified
	}
	// The first proposal of tokens is computed from this sample.
	if answer.err == nil && answer.dials == dials && several {
		m.Sample(s.cfg.Key, sent, answer.micros)
	}
	return answer
}
