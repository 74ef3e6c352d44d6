// Package riverlock is a recipe for river: jobs that share a lock run one at a time, in all processes.
package riverlock

import (
	"context"
	"errors"
	"fmt"
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

// ErrTaken reports that a job is not running in this attempt any more: it was rescued, cancelled, completed or deleted.
// The work was rolled back.
var ErrTaken = errors.New("riverlock: the job was taken from this attempt")

// Complete runs work and completes the job in one transaction, which PostgreSQL commits only if the fence of the
// resource is not stale, and if the job is still running in this attempt; else the error is ErrTaken. So the work of a
// job is done once, also if its process ends or its lock is lost: after the commit river takes no error of the job, and
// before the commit nothing is kept.
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
		if err := requireRunning(ctx, tx, job.JobRow); err != nil {
			return err
		}
		_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job)
		return err
	})
}

// requireRunning locks the row of the job until the commit. JobCompleteTx returns no error for a job that is not
// running, and completes one that is running in another attempt.
func requireRunning(ctx context.Context, tx pgx.Tx, job *rivertype.JobRow) error {
	table := pgx.Identifier{"river_job"}
	if client, err := river.ClientFromContextSafely[pgx.Tx](ctx); err == nil && client.Schema() != "" {
		table = pgx.Identifier{client.Schema(), "river_job"}
	}
	var state rivertype.JobState
	var attemptedAt *time.Time
	err := tx.QueryRow(ctx, `SELECT state, attempted_at FROM `+table.Sanitize()+` WHERE id = $1 FOR UPDATE`, job.ID).
		Scan(&state, &attemptedAt)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return fmt.Errorf("%w: job %d is deleted", ErrTaken, job.ID)
	case err != nil:
		return err
	case state != rivertype.JobStateRunning:
		return fmt.Errorf("%w: job %d is %s", ErrTaken, job.ID, state)
	case job.AttemptedAt == nil || attemptedAt == nil || !attemptedAt.Equal(*job.AttemptedAt):
		return fmt.Errorf("%w: job %d is running in another attempt", ErrTaken, job.ID)
	}
	return nil
}
