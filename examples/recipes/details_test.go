package recipes_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/hibiken/asynq"
	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/examples/recipes/asynqlock"
	"github.com/seed74116694/fencelock/examples/recipes/riverlock"
	"github.com/seed74116694/fencelock/examples/recipes/watermilllock"
	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/pgxguard"
	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/locktest"
	"github.com/seed74116694/fencelock/rwlock"
)

// Without its database: what the middleware returns to river.
func TestRiverIsToldWhatToDo(t *testing.T) {
	locks := locktest.New(t)
	run := func(lock string, work func(context.Context) error) error {
		middleware := riverlock.Exclusive(locks.Locker, func(*rivertype.JobRow) string { return lock })
		return middleware.Work(t.Context(), &rivertype.JobRow{}, work)
	}
	never := func(context.Context) error { panic("it runs") }
	var snooze *river.JobSnoozeError

	held := locks.Hold(name)
	require.ErrorAs(t, run(name, never), &snooze)
	require.GreaterOrEqual(t, snooze.Duration, time.Second)
	require.NoError(t, held.Release(t.Context()))
	own := errors.New("own")
	require.Equal(t, own, run(name, func(context.Context) error { return own }))
	require.NoError(t, run(name, func(ctx context.Context) error { _, err := fencing.Require(ctx, name); return err }))

	err := run("", never) // no attempt will be better
	require.ErrorIs(t, err, rwlock.ErrOption)
	require.False(t, errors.As(err, &snooze))
	require.NoError(t, locks.Close())
	err = run(name, never)
	require.ErrorAs(t, err, &snooze)
	require.ErrorIs(t, err, rwlock.ErrClosed)
}

func TestAsynqIsToldWhatToDo(t *testing.T) {
	locks := locktest.New(t)
	run := func(lock string) error {
		never := asynq.HandlerFunc(func(context.Context, *asynq.Task) error { panic("it runs") })
		handler := asynqlock.Exclusive(locks.Locker, func(*asynq.Task) string { return lock })(never)
		return handler.ProcessTask(t.Context(), asynq.NewTask("deposit", nil))
	}
	locks.Hold(name)
	err := run(name)
	require.ErrorIs(t, err, asynqlock.ErrBusy)
	require.False(t, asynqlock.IsFailure(err))
	require.InDelta(t, 1.5, asynqlock.RetryDelay(0, err, nil).Seconds(), 0.5)

	err = run("") // no attempt will be better
	require.ErrorIs(t, err, rwlock.ErrOption)
	require.True(t, asynqlock.IsFailure(err))
	require.GreaterOrEqual(t, asynqlock.RetryDelay(0, err, nil), 10*time.Second)
	require.NoError(t, locks.Close())
	require.ErrorIs(t, run(name), asynqlock.ErrBusy)
}

// What a handler has produced under a lock that was lost is not published, and the message has its own context again.
func TestWatermillPublishesNothingAfterALoss(t *testing.T) {
	locks := locktest.New(t)
	lost := true
	exclusive := watermilllock.Exclusive(locks.Locker, patience, func(*message.Message) string { return name })
	handle := exclusive(func(msg *message.Message) ([]*message.Message, error) {
		expect.NoError(fencing.Require(msg.Context(), name)).In(t)
		if lost {
			locks.Lose(name)
			require.ErrorIs(t, context.Cause(msg.Context()), rwlock.ErrLost)
		}
		return []*message.Message{message.NewMessage("produced", nil)}, nil
	})
	msg := message.NewMessage("consumed", nil)
	for _, lost = range []bool{true, false} {
		produced, err := handle(msg)
		require.NoError(t, msg.Context().Err())
		if lost {
			require.ErrorIs(t, err, rwlock.ErrLost)
			require.Empty(t, produced)
			continue
		}
		require.NoError(t, err)
		require.Len(t, produced, 1)
	}
}

// A message waits for its lock no longer than it should.
func TestWatermillGivesAMessageBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := locktest.New(t)
		locks.Hold(name)
		exclusive := watermilllock.Exclusive(locks.Locker, time.Second, func(*message.Message) string { return name })
		_, err := exclusive(func(*message.Message) ([]*message.Message, error) { panic("it runs") })(
			message.NewMessage("consumed", nil))
		require.ErrorIs(t, err, rwlock.ErrNotAcquired)
	})
}

// The work of a job and its completion are one transaction: under a stale fence neither is done, and after the commit a
// lost lock does not bring the job back.
func TestRiverCompletesAJobWithItsWork(t *testing.T) {
	const ttl = time.Hour
	pool := openPool(t)
	guard := expect.NoError(pgxguard.New()).In(t)
	require.NoError(t, guard.Create(t.Context(), pool))
	expect.NoError(pool.Exec(t.Context(), `CREATE TABLE deposits (run INT)`)).In(t)
	locks := locktest.New(t, rwlock.WithTTL(ttl))

	var runs atomic.Int32
	began, resume, ended, failed := make(chan int), make(chan int), make(chan error, 10), make(failures, 100)
	submit := runRiver(t, pool, program{processes: []*rwlock.Locker{locks.Locker}, failed: failed.add},
		func(ctx context.Context, job *river.Job[deposit]) error {
			run := runs.Add(1)
			if run == 1 {
				close(began)
				select {
				case <-resume:
				case <-t.Context().Done():
				}
			}
			err := riverlock.Complete(ctx, pool, guard, name, job, func(ctx context.Context, tx pgx.Tx) error {
				_, err := tx.Exec(ctx, `INSERT INTO deposits VALUES ($1)`, run)
				return err
			})
			if run == 2 {
				locks.Lose(name)
			}
			ended <- err
			return err
		})
	submit(3)
	await(t, "the job", began)
	locks.Advance(ttl + time.Minute)
	newer := expect.NoError(locks.Another().TryLock(t.Context(), name)).In(t)
	require.NoError(t, guard.Claim(t.Context(), pool, newer.Fence()))
	require.NoError(t, newer.Release(t.Context()))
	close(resume)
	require.ErrorIs(t, await(t, "the first attempt", ended), fencing.ErrStale)
	failed.until(t, fencing.ErrStale)
	require.NoError(t, await(t, "the second attempt", ended))
	failed.until(t, rwlock.ErrLost)

	var state string
	var written []int32
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT state FROM river_job`).Scan(&state))
	require.Equal(t, "completed", state)
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT array_agg(run) FROM deposits`).Scan(&written))
	require.Equal(t, []int32{2}, written)
}

// A job that is not running in the attempt any more, such as one that river has rescued from a process that was paused
// for too long, is not completed by it, and its work is rolled back.
func TestRiverCompletesNoJobOfAnotherAttempt(t *testing.T) {
	pool := openPool(t)
	guard := expect.NoError(pgxguard.New()).In(t)
	require.NoError(t, guard.Create(t.Context(), pool))
	expect.NoError(pool.Exec(t.Context(), `CREATE TABLE deposits (run INT)`)).In(t)
	locks := locktest.New(t)
	changes := []string{
		`UPDATE river_job SET state = 'retryable', scheduled_at = now()`,                          // by a rescuer
		`UPDATE river_job SET attempt = 2, attempted_at = now()`,                                  // and then fetched again
		`UPDATE river_job SET state = 'completed', finalized_at = now()`,                          // by another attempt
		`UPDATE river_job SET state = 'cancelled', finalized_at = now()`, `DELETE FROM river_job`, // by somebody
	}
	ended, failed := make(chan error, 10), make(failures, 100)
	submit := runRiver(t, pool, program{processes: []*rwlock.Locker{locks.Locker}, failed: failed.add},
		func(ctx context.Context, job *river.Job[deposit]) error {
			work := func(ctx context.Context, tx pgx.Tx) error {
				_, err := tx.Exec(ctx, `INSERT INTO deposits VALUES (1)`)
				return err
			}
			back := func() error {
				_, err := pool.Exec(ctx, `UPDATE river_job
					SET state = 'running', attempt = 1, attempted_at = $1, finalized_at = NULL`, job.AttemptedAt)
				return err
			}
			for _, change := range changes {
				_, err := pool.Exec(ctx, change)
				if err == nil {
					err = riverlock.Complete(ctx, pool, guard, name, job, work)
				}
				ended <- errors.Join(err, back())
			}
			return river.JobCancel(errors.New("done"))
		})
	submit(1)
	for _, change := range changes {
		require.ErrorIs(t, await(t, change, ended), riverlock.ErrTaken, change)
	}
	var written int
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM deposits`).Scan(&written))
	require.Zero(t, written)
}
