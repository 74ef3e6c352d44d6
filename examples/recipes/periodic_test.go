package recipes_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/examples/recipes/asynqlock"
	"github.com/seed74116694/fencelock/examples/recipes/cronlock"
	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/locktest"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/ticks"
)

// Three processes run each tick once, although the job is over at once and two of them reach the server later. The
// fence is that of the tick, although cron does not say which tick it is.
func TestCronRunsATickOnce(t *testing.T) {
	testkit.InFakeTime(t, 1, func(w *testkit.World) {
		w.Pass(time.Second)
		var runs atomic.Int32
		for i := range 3 {
			p := w.ProcessAt(time.Duration(i) * 20 * time.Millisecond)
			jobs := cronlock.Jobs{
				Scheduler: cron.New(cron.WithLocation(time.UTC)), Ticks: expect.NoError(ticks.New(p.Client)).In(w),
				Failed: func(err error) { w.Error(err) },
			}
			expect.NoError(jobs.Add(w.Ctx, "*/5 * * * *", "report", func(ctx context.Context) error {
				runs.Add(1)
				fence, err := fencing.Require(ctx, "ticks/report")
				if due := time.Now().Truncate(5 * time.Minute); fence.Token != fencing.Token(due.UnixMicro()) {
					w.Errorf("the fence %v of the tick %v", fence, due)
				}
				return err
			})).In(w)
			jobs.Scheduler.Start()
			defer func() { <-jobs.Scheduler.Stop().Done() }()
		}
		w.Pass(time.Hour)
		require.EqualValues(w, 12, runs.Load())
	})
}

func TestCronRefusesWhatHasNoCommonTime(t *testing.T) {
	jobs := cronlock.Jobs{Scheduler: cron.New()}
	for _, spec := range []string{"@every 1h", "not a spec"} {
		_, err := jobs.Add(t.Context(), spec, "report", nil)
		require.ErrorContains(t, err, spec)
	}
	require.Empty(t, jobs.Scheduler.Entries())
}

// One node enqueues. When it loses its lock its scheduler ends, and a new one enqueues, on this node or on another.
func TestAsynqSchedulesOnOneNode(t *testing.T) {
	locks := locktest.New(t)
	redis := asynq.RedisClientOpt{Addr: miniredis.RunT(t).Addr()}
	ctx, cancel := context.WithCancel(t.Context())
	var atWork, made atomic.Int32
	enqueued, failed, ended := make(chan error, 1000), make(failures, 100), make(chan error, 2)
	for _, locker := range []*rwlock.Locker{locks.Locker, locks.Another()} {
		newOne := func() (asynqlock.Periodic, error) {
			if made.Add(1) == 1 {
				return nil, errors.New("not this time")
			}
			s := asynq.NewScheduler(redis, &asynq.SchedulerOpts{
				PostEnqueueFunc: func(_ *asynq.TaskInfo, err error) { enqueued <- err },
				Logger:          silent{},
			})
			_, err := s.Register("@every 1s", asynq.NewTask("report", nil))
			return counted{s, &atWork}, err
		}
		go func() { ended <- asynqlock.OnOneNode(ctx, locker, "scheduler", newOne, failed.add) }()
	}
	require.ErrorContains(t, await(t, "the first error", failed), "not this time")
	for range 2 {
		require.NoError(t, await(t, "a task", enqueued))
	}
	before := made.Load()
	locks.Lose("scheduler")
	require.ErrorIs(t, await(t, "the loss", failed), rwlock.ErrLost)
	for made.Load() == before {
		require.NoError(t, await(t, "a task", enqueued))
	}
	require.NoError(t, await(t, "a task", enqueued))
	cancel()
	for range 2 {
		require.ErrorIs(t, await(t, "the end", ended), context.Canceled)
	}
	require.Zero(t, atWork.Load())
	require.NoError(t, locks.Close())
	require.ErrorIs(t, asynqlock.OnOneNode(t.Context(), locks.Locker, "scheduler", nil, nil), rwlock.ErrClosed)
}

// counted counts the schedulers at work. After a loss there may be two for a moment.
type counted struct {
	asynqlock.Periodic
	atWork *atomic.Int32
}

func (c counted) Start() error {
	c.atWork.Add(1)
	return c.Periodic.Start()
}

func (c counted) Shutdown() {
	c.Periodic.Shutdown()
	c.atWork.Add(-1)
}
