// Package asynqlock is a recipe for asynq: tasks that share a lock run one at a time, in all processes.
package asynqlock

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/hibiken/asynq"

	"github.com/seed74116694/fencelock/rwlock"
)

// ErrBusy reports that a task did not run: its lock is taken, or no server answers.
var ErrBusy = errors.New("asynqlock: the task did not run, its lock cannot be had now")

// Exclusive returns a middleware for ServeMux.Use, or around one handler. A task runs under the lock that lockOf names.
// Its context carries the fence, and ends with the lock. If the lock is lost while the task runs, the task fails with
// the loss, also if its handler returned nil.
//
// If the lock is taken, or no server answers, the task does not run and the error matches ErrBusy. With IsFailure and
// RetryDelay in the Config of the server that costs no retry. A task without a retry left would be archived then,
// whatever IsFailure says. So it waits for its lock, in the order of arrival, until its time is over.
func Exclusive(locker *rwlock.Locker, lockOf func(*asynq.Task) string) asynq.MiddlewareFunc {
	return func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			ran, lock := false, lockOf(task)
			run := func(ctx context.Context) error {
				ran = true
				return next.ProcessTask(ctx, task)
			}
			var err error
			if hasNoRetry(ctx) {
				err = locker.Do(ctx, lock, run)
			} else {
				_, err = locker.TryDo(ctx, lock, run)
			}
			if ran || errors.Is(err, rwlock.ErrOption) { // such as a bad name: another attempt does not help
				return err
			}
			return errors.Join(ErrBusy, err)
		})
	}
}

func hasNoRetry(ctx context.Context) bool {
	retried, _ := asynq.GetRetryCount(ctx)
	limit, known := asynq.GetMaxRetry(ctx)
	return known && retried >= limit
}

// IsFailure is for Config.IsFailure: a task that did not run keeps its retries.
func IsFailure(err error) bool { return !errors.Is(err, ErrBusy) }

// RetryDelay is for Config.RetryDelayFunc: a task that did not run is tried again soon, not all of them at one moment.
func RetryDelay(retried int, err error, task *asynq.Task) time.Duration {
	if errors.Is(err, ErrBusy) {
		return time.Second + rand.N(time.Second)
	}
	return asynq.DefaultRetryDelayFunc(retried, err, task)
}
