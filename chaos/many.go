package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/seed74116694/fencelock/chaos/history"
	"github.com/seed74116694/fencelock/rwlock"
)

// many takes several locks at once, named in any order, and works under one of them.
func (c *client) many(ctx context.Context, limit time.Duration) {
	write, take := c.rng.IntN(2) == 0, c.locker.RLockAll
	switch try := c.rng.IntN(5) == 0; {
	case try && write:
		take = c.locker.TryLockAll
	case try:
		take = c.locker.TryRLockAll
	case write:
		take = c.locker.LockAll
	}
	names := make([]string, 0, c.w.cfg.Names)
	for _, i := range c.rng.Perm(c.w.cfg.Names)[:1+c.rng.IntN(c.w.cfg.Names)] {
		names = append(names, fmt.Sprint("n", i))
	}
	spans := make([]history.Span, len(names))
	for i, name := range names {
		spans[i] = c.span(name, "many", write)
	}
	all, err := take(ctx, names)
	if err != nil {
		c.failed(spans[0], limit, err)
		return
	}
	losses := make([]*atomic.Int64, len(names)) // when each context ended
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
	held, at := all.Context(context.Background()), c.rng.IntN(len(names))
	c.work(&spans[at], held)
	if losses[at].Load() == 0 { // held ends with the first loss of any of them
		spans[at].Over = 0
	}
	for i := range spans {
		c.look(&spans[i], held)
	}
	released := all.Release(context.Background())
	for i, name := range names {
		c.lost = losses[i]
		c.ended(spans[i], errorOf(released, name))
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
