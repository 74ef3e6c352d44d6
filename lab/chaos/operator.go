package main

import (
	"context"

	"github.com/seed74116694/fencelock/lab/chaos/history"
	"github.com/seed74116694/fencelock/rwlock"
)

// operate breaks a hold or a waiter of any process, which it sees as an operator would.
func (c *client) operate(ctx context.Context, name string) {
	if c.rng.IntN(3) == 0 {
		name = "m" + name
	}
	state, err := c.locker.Inspect(ctx, name)
	if err != nil {
		return
	}
	holders, waiters := len(state.Holders), len(state.Waiters)
	if holders+waiters == 0 {
		return
	}
	b := history.Break{Process: c.w.cfg.Process, Name: name, Called: now()}
	var opts []rwlock.BreakOption
	if i := c.rng.IntN(holders + waiters); i < holders {
		// Of the token block of a shared hold, Inspect shows only the last token.
		h := state.Holders[i]
		b.Hold, b.Token, b.Tokens = h.Hold, uint64(h.Token), tokensOf(state, h.Hold)
		b.Now = !h.Shared && !h.Broken && c.rng.IntN(2) == 0
	} else {
		b.Hold = state.Waiters[i-holders].Hold
	}
	if b.Now {
		opts = append(opts, rwlock.BreakNow())
	}
	c.w.record(history.Event{Break: &b}) // before the call: this process may be killed in it
	_ = c.locker.Break(ctx, name, b.Hold, "drawn", opts...)
}

// tokensOf returns the tokens that the masters have given a hold.
func tokensOf(state rwlock.State, hold string) (all []uint64) {
	for _, m := range state.Masters {
		for _, h := range m.Holders {
			if h.Hold == hold {
				all = append(all, uint64(h.Token))
			}
		}
	}
	return all
}
