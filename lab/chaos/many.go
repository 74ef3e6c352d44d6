package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/seed74116694/fencelock/lab/chaos/history"
	"github.com/seed74116694/fencelock/rwlock"
)

// many takes several locks at once, in mixed modes and any order, and works under one of them.
func (c *client) many(ctx context.Context, limit time.Duration) {
	take := c.locker.LockAll
	if c.rng.IntN(5) == 0 {
		take = c.locker.TryLockAll
	}
	wants := make([]rwlock.Want, 0, c.w.cfg.Names)
	for _, i := range c.rng.Perm(c.w.cfg.Names)[:1+c.rng.IntN(c.w.cfg.Names)] {
		mode := rwlock.Mode(1 + c.rng.IntN(2))
		wants = append(wants, rwlock.Want{Name: fmt.Sprint("n", i), Mode: mode})
	}
	spans := make([]history.Span, len(wants))
	for i, want := range wants {
		spans[i] = c.span(want.Name, "many", want.Mode == rwlock.Write)
	}
	all, err := take(ctx, wants)
	if err != nil {
		c.failed(spans[0], limit, err)
		return
	}
	losses := make([]*atomic.Int64, len(wants)) // when each context ended
	for i, lease := range all.Leases() {
		spans[i].Granted, spans[i].Token = now(), uint64(lease.Token())
		losses[i] = new(atomic.Int64)
		held := lease.Context(context.Background())
		context.AfterFunc(held, func() {
			if errors.Is(context.Cause(held), rwlock.ErrLost) {
				losses[i].Store(now())
			}
		})
	}
	held, at := all.Context(context.Background()), c.rng.IntN(len(wants))
	c.work(&spans[at], held)
	if losses[at].Load() == 0 { // held ends with the first loss of any of them
		spans[at].Over = 0
	}
	for i := range spans {
		c.look(&spans[i], held)
	}
	released := all.Release(context.Background())
	for i, want := range wants {
		c.lost = losses[i]
		c.ended(spans[i], errorOf(released, want.Name))
	}
}

// errorOf returns the part of an error of several locks that is about this one, or nil.
func errorOf(err error, name string) error {
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		for _, part := range several.Unwrap() {
			if found := errorOf(part, name); found != nil {
				return found
			}
		}
	}
	switch e := err.(type) {
	case *rwlock.LostError:
		if e.Name == name {
			return e
		}
	case *rwlock.QuorumError:
		if e.Name == name {
			return e
		}
	}
	return nil
}
