package engine

import (
	"context"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/internal/wire"
)

type (
	// Holder is one granted hold as a master reports it.
	Holder = wire.Holder
	// Waiter is one queued hold as a master shows it.
	Waiter = wire.Waiter
)

// View is a lock as one master shows it.
type View struct {
	Index   int
	Addr    string
	Token   fencing.Token
	Holders []Holder
	Waiters []Waiter
	Err     error
}

// Inspect asks every master for the state of the lock, and changes nothing. Each view is of one master only: a lock
// that one of several masters shows as held may have no holder, if no quorum shows the same. open is false after Close.
func (e *Engine) Inspect(ctx context.Context, name string) (all []View, open bool) {
	if e.registry.isClosed() {
		return nil, false
	}
	k := e.keys.All(e.keys.Of(name))
	views := make(chan View, len(e.masters))
	for _, m := range e.masters {
		ask := func() {
			bounded, cancel := context.WithTimeout(ctx, e.cfg.ReleaseTimeout)
			defer cancel()
			r, sent := m.Do(bounded, e.scriptsOf(m).inspect, k.OfLock(), wire.Vote{}, nil)
			reply, err := wire.ReadInspect(r)
			// The time limit is this package's or the caller's. In both cases the master did not answer within it.
			if err != nil && bounded.Err() != nil {
				err = &transport.NoReply{After: e.clock.Now().Mono - sent.Mono}
			}
			views <- View{
				Index: m.Index, Addr: m.At(k[0]).Addr(), Token: reply.Token, Holders: reply.Holders, Waiters: reply.Waiters,
				Err: m.Explain(err),
			}
		}
		// The locker was closed in between. The masters that were asked answer into a channel that has room for all.
		if !e.tasks.spawn(ask) {
			return nil, false
		}
	}
	all = make([]View, len(e.masters))
	for range e.masters {
		v := <-views
		all[v.Index] = v
	}
	return all, true
}
