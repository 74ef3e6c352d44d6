// Package riverlock is a recipe for river: jobs that share a lock run one at a time, in all processes.
package riverlock

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/pgxguard"
	"github.com/seed74116694/fencelock/rwlock"
)

// Exclusive returns a middleware for Config.Middleware, or for the method Middleware of one worker. A job runs under
// the lock that lockOf names. Its context carries the fence, and ends with the lock. If the lock is lost while the job
// runs, the job fails with the loss, also if its worker returned nil.
//
// If the lock is taken, or no server answers, the job does not run. It is snoozed for a second or two, which costs no
// attempt.
func Exclusive(locker *rwlock.Locker, lockOf func(*rivertype.JobRow) string) rivertype.WorkerMiddleware {
	return river.WorkerMiddlewareFunc(
		func(ctx context.Context, job *rivertype.JobRow, doInner func(context.Context) error) error {
			ran, err := locker.TryDo(ctx, lockOf(job), doInner)
			if ran || errors.Is(err, rwlock.ErrOption) { // such as a bad name: another attempt does not help
				return err
			}
			return errors.Join(river.JobSnooze(time.Second+rand.N(time.Second)), err)
		})
}

// Complete runs work and completes the job in one transaction, which PostgreSQL commits only if the fence of the
// resource is not stale. So the work of a job is done once, whatever becomes of its process or of its lock: after the
// commit river takes no error of the job, and before it there is nothing to be undone.
func Complete[T river.JobArgs](ctx context.Context, pool *pgxpool.Pool, guard *pgxguard.Guard, resource string,
	job *river.Job[T], work func(context.Context, pgx.Tx) error,
) error {
	fence, err := fencing.Require(ctx, resource)
	if err != nil {
		return err
	}
	return guard.Do(ctx, pool, fence, func(ctx context.Context, tx pgx.Tx) error {
		if err := work(ctx, tx); err != nil {
			return err
		}
		_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job)
		return err
	})
}
