package main

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"time"

	"github.com/seed74116694/fencelock/rwlock"
)

// defineStuck says of each holder whether its process renews it. A process renews a hold when a third of the TTL has
// passed. So at least two thirds are left of a live one, and half of what is left passes until the next renewal.
func defineStuck(*flag.FlagSet) func(context.Context, *session) (int, error) {
	return func(ctx context.Context, s *session) (int, error) {
		c, err := s.target.connect(ctx)
		if err != nil {
			return 0, err
		}
		defer c.close()
		first, err := c.locker.Inspect(ctx, s.name)
		if err != nil {
			return 0, err
		}
		fmt.Fprintln(s.out, inWords(first))
		open := slices.DeleteFunc(slices.Clone(first.Holders), func(h rwlock.Holder) bool {
			said := verdict(h)
			if said != "" {
				fmt.Fprintf(s.out, "%s: %s\n", named(h), said)
			}
			return said != ""
		})
		for _, h := range open {
			fmt.Fprintf(s.errs, "fencelock: waiting for a renewal of %s, for %s at most\n", h.Hold, brief(looks(h)))
		}
		begun := time.Now()
		for last := first; len(open) > 0; {
			select {
			case <-ctx.Done():
				return 0, ctx.Err()
			case <-time.After(stuckEvery):
			}
			asked := time.Now()
			if last, err = c.locker.Inspect(ctx, s.name); err != nil {
				return 0, err
			}
			open = slices.DeleteFunc(open, func(h rwlock.Holder) bool {
				said := looked(h, last, asked.Sub(begun), s.name)
				if said != "" {
					fmt.Fprintf(s.out, "%s: %s\n", named(h), said)
				}
				return said != ""
			})
		}
		if len(first.Holders) == 0 {
			return statusNo, nil
		}
		return statusOK, nil
	}
}

const stuckEvery = 200 * time.Millisecond

// looks returns for how long a renewal of a hold is waited for.
func looks(h rwlock.Holder) time.Duration { return h.Remaining*6/10 + time.Second/2 }

// named names a holder: what its process says of itself, and the hold.
func named(h rwlock.Holder) string { return printable(h.Meta) + ", hold " + printable(h.Hold) }

// verdict returns what one look suffices for, or "".
func verdict(h rwlock.Holder) string {
	switch {
	case h.Ended:
		return "not stuck: it was released, and stands for its minimum, for " + brief(h.Remaining)
	case h.Broken:
		return "broken by " + printable(h.BrokenBy) + ": " + printable(h.BrokenWhy) + "; it ends when its process has " +
			"given it back, in " + brief(h.Remaining) + " at most"
	case h.Detached:
		return "left to another process, which adopts it, or it ends in " + brief(h.Remaining)
	}
	return ""
}

// looked returns what a later look says of a holder, or "" if it is too early.
func looked(h rwlock.Holder, now rwlock.State, passed time.Duration, name string) string {
	i := slices.IndexFunc(now.Holders, func(other rwlock.Holder) bool { return other.Hold == h.Hold })
	if i < 0 {
		return "not stuck: the lock was given back, or has expired"
	}
	left := now.Holders[i].Remaining
	switch {
	case left > h.Remaining-passed+stuckEvery/2:
		return "its process lives: it has renewed the lock now. If its work hangs: fencelock break " + printable(name) +
			" -hold " + h.Hold + " -reason TEXT"
	case passed > looks(h):
		return fmt.Sprintf("it was not renewed for %s: its process is dead, stopped or cut off, or took the lock without "+
			"renewal. The lock is free in %s", brief(passed), brief(left))
	}
	return ""
}
