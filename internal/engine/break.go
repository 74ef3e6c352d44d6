package engine

import (
	"context"
	"errors"
	"time"

	"github.com/seed74116694/fencelock/internal/errs"
	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/internal/wire"
)

// Breaker is who broke a hold, and why.
type Breaker = wire.Breaker

// ErrGone is the error of a Break of a hold that a quorum does not have.
var ErrGone = errors.New("hold is gone")

// Break makes a hold unrenewable on every master, and returns when a quorum does not have it any more: its process has
// given it back, or it has expired. At once, and for a waiter, that is the case at once. A quorum has to carry it out,
// else the error is an *Error. To repeat it is harmless.
func (a Admin) Break(ctx context.Context, name, hold string, by Breaker, atOnce bool) error {
	for first, pause := true, breakPoll; ; first, pause = false, min(2*pause, breakPollMost) {
		answers, err := a.breakOnAll(ctx, name, hold, by, atOnce)
		if err != nil {
			return err
		}
		gone, found := 0, false
		for _, reply := range answers {
			if reply.Broken != wire.BreakStands {
				gone++
			}
			found = found || reply.Broken != wire.BreakGone
		}
		switch {
		case first && !found:
			return ErrGone
		case gone >= a.e.masters.quorum():
			return nil
		}
		// Its process may give the hold back at any moment, and tells only waiters.
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return errs.Cause(ctx)
		case <-a.e.life.Done():
			return ErrClosed
		}
	}
}

// How often Break asks whether the hold still stands.
const (
	breakPoll     = 20 * time.Millisecond
	breakPollMost = 500 * time.Millisecond
)

// breakOnAll runs the script on every master and returns the answers of at least a quorum.
func (a Admin) breakOnAll(
	ctx context.Context, name, hold string, by Breaker, atOnce bool,
) (answers []wire.BreakReply, err error) {
	e, key := a.e, a.e.keys.Of(name)
	request := wire.Break{Hold: hold, AtOnce: atOnce, Late: wire.FormatMillis(lateness), By: by}
	type answer struct {
		m     *transport.Master
		reply wire.BreakReply
		err   error
	}
	all := make(chan answer, len(e.masters))
	for _, m := range e.masters {
		ask := func() {
			bounded, cancel := context.WithTimeout(ctx, e.cfg.ReleaseTimeout)
			defer cancel()
			r, sent := m.Do(bounded, e.scripts.of(m).breaks, e.keys.ForCall(key), m.Vote(e.tokens.proposal()), request.Args(nil))
			reply, err := wire.ReadBreak(r)
			if err != nil && bounded.Err() != nil {
				err = &transport.NoReply{After: e.clock.Now().Mono - sent.Mono}
			}
			all <- answer{m, reply, err}
		}
		if e.registry.isClosed() || !e.tasks.spawn(ask) {
			return nil, ErrClosed
		}
	}
	failed := &Error{Op: OpBreak, Kind: NoQuorum, Unknown: true, Name: name, Need: e.masters.quorum()}
	for range e.masters {
		a := <-all
		if a.err != nil {
			i, _ := failed.Nodes.find(a.m.Index)
			cause := failureOf(a.m, key, a.m.Explain(a.err))
			failed.Nodes = append(failed.Nodes[:i], append(NodeFailures{cause}, failed.Nodes[i:]...)...)
			continue
		}
		answers = append(answers, a.reply)
		if a.reply.More == wire.MoreAdmits {
			e.waiters[a.m.Index].goOn(key, a.reply.More)
		}
	}
	if failed.Got = len(answers); failed.Got >= failed.Need {
		return answers, nil
	}
	if ctx.Err() != nil {
		failed.Err = errs.Cause(ctx)
	}
	failed.Kind, _ = e.masters.refusal(failed.Nodes)
	return nil, failed
}

// hearBroken ends a hold that an operator has broken.
func (h *hold) hearBroken(notice wire.BreakNotice) {
	h.lease.mu.Lock()
	defer h.lease.mu.Unlock()
	if notice.Hold == h.id && h.phase != ended {
		h.broken(notice.By)
	}
}

// inherit ends the hold because the hold before it was broken, although this process released that one without knowing.
// An acquisition that asks again goes on under its next id, a lease that was converted with the hold in the other mode.
// For the operator both are what he has broken, but a message that names the former hold finds it no more. So the
// master says so when the former hold is released. Without an heir nothing goes on.
func (h *hold) inherit(by *Breaker) {
	if h == nil {
		return
	}
	h.lease.mu.Lock()
	defer h.lease.mu.Unlock()
	if h.replaced { // by a conversion, while the release was on its way
		h = h.lease.standing.Load()
	}
	if h.phase != ended {
		h.broken(by)
	}
}

// broken ends the hold, under mu, because a master says that an operator has broken it. One master suffices: the end
// gives the hold back on all of them, which is what the operator wants.
func (h *hold) broken(by *Breaker) {
	if h.phase == asking {
		h.asking.giveUp(h.asking.failure(Contended, by))
		return
	}
	h.lose(h.loss(Broken, by))
}
