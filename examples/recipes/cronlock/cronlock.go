// Package cronlock is a recipe for robfig/cron: each tick of a job runs in one of many processes.
package cronlock

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/seed74116694/fencelock/rwlock"
)

// Ticks makes jobs of cron that run once per tick, by the second way of docs/integrations.md, which has the rules for
// MinHold and the TTL.
type Ticks struct {
	Locker  *rwlock.Locker
	MinHold time.Duration       // how long the name stays taken after its grant: half of the period is a good value
	Options []rwlock.LockOption // such as rwlock.WithTTL, for periods of less than half a minute
	Failed  func(error)         // gets the errors of the work, of the lock and of its loss
}

// Job returns a job for Cron.Schedule and Cron.AddJob. At each tick it does the work in the first process that gets the
// lock of that name; the other ones skip the tick. The context of the work carries the fence, and ends with the lock.
// ctx ends the work at the shutdown, before Cron.Stop waits for it.
func (t Ticks) Job(ctx context.Context, name string, work func(context.Context) error) cron.Job {
	return cron.FuncJob(func() {
		if err := t.tick(ctx, name, work); err != nil {
			t.Failed(err)
		}
	})
}

// Wrapper is Job for a job that has no context, and so does not learn that its lock was lost.
func (t Ticks) Wrapper(ctx context.Context, name string) cron.JobWrapper {
	return func(job cron.Job) cron.Job {
		return t.Job(ctx, name, func(context.Context) error {
			job.Run()
			return nil
		})
	}
}

// tick repeats its attempt for a moment: over a quorum attempts that are made at the same time may all be refused.
func (t Ticks) tick(ctx context.Context, name string, work func(context.Context) error) error {
	opts := append([]rwlock.LockOption{rwlock.WithMinHold(t.MinHold)}, t.Options...)
	for begun := time.Now(); ; {
		ran, err := t.Locker.TryDo(ctx, name, work, opts...)
		if ran || time.Since(begun) > 100*time.Millisecond {
			return err
		}
		select {
		case <-time.After(10*time.Millisecond + rand.N(20*time.Millisecond)):
		case <-ctx.Done():
			return err
		}
	}
}
