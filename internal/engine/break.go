package engine

import (
	"context"
	"errors"
	"time"

	"github.com/seed74116694/fencelock/internal/errs"
	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/internal/wire"
)

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
		reply wire.BreakReply
		err   error
	}
	all, open := askAll(e, func(m *transport.Master) (a answer) {
		bounded, cancel := context.WithTimeout(ctx, e.cfg.ReleaseTimeout)
		defer cancel()
		keys, vote := e.keys.ForCall(nil, key), m.Vote(e.tokens.proposal())
		r, sent := m.Do(bounded, e.scripts.of(m).breaks, keys, vote, request.Args(nil))
		if a.reply, a.err = wire.ReadBreak(r); a.err != nil && bounded.Err() != nil {
			a.err = &transport.NoReply{After: e.clock.Now().Mono - sent.Mono}
		}
		if a.reply.More == wire.MoreAdmits {
			e.waiters[m.Index].goOn(key, a.reply.More)
		}
		return a
	})
	if !open {
		return nil, ErrClosed
	}
	failed := &Error{Op: OpBreak, Kind: NoQuorum, Unknown: true, Name: name, Need: e.masters.quorum()}
	for i, m := range e.masters {
		if err := all[i].err; err != nil {
			failed.Nodes = append(failed.Nodes, failureOf(m, key, m.Explain(err)))
		} else {
			answers = append(answers, all[i].reply)
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
