package asynqlock

import (
	"context"
	"errors"
	"time"

	"github.com/seed74116694/fencelock/rwlock"
)

// Periodic is an *asynq.Scheduler or an *asynq.PeriodicTaskManager.
type Periodic interface {
	Start() error
	Shutdown()
}

// OnOneNode has one of many processes enqueue periodic tasks: the holder of the lock of that name. asynq cannot start a
// scheduler again that was shut down, so newOne makes another each time that the lock is granted. failed gets its
// errors, and the loss of a lock. OnOneNode returns when ctx has ended, or when the locker was closed.
//
// When another node takes over, a tick may be enqueued twice, or be missed. asynq.Unique with less than the period
// keeps the second task out. Without such gaps ticks.Do enqueues a task, in a job of package cronlock.
func OnOneNode(
	ctx context.Context, locker *rwlock.Locker, name string, newOne func() (Periodic, error), failed func(error),
) error {
	for {
		err := locker.Do(ctx, name, func(ctx context.Context) error {
			scheduler, err := newOne()
			if err != nil {
				return err
			}
			if err := scheduler.Start(); err != nil {
				return err
			}
			defer scheduler.Shutdown()
			<-ctx.Done()
			return context.Cause(ctx)
		})
		if ctx.Err() != nil || errors.Is(err, rwlock.ErrClosed) || errors.Is(err, rwlock.ErrOption) {
			return err
		}
		failed(err)
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}
