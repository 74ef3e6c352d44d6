package recipes_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/rueidis"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"
	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/examples/recipes/asynqlock"
	"github.com/seed74116694/fencelock/examples/recipes/cronlock"
	"github.com/seed74116694/fencelock/examples/recipes/riverlock"
	"github.com/seed74116694/fencelock/examples/recipes/watermilllock"
	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/locktest"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/ticks"
)

// name is the lock of all jobs.
const name = "accounts/7"

// program runs jobs in some processes, each with a locker of its own. A job that has failed is run again.
type program struct {
	processes []*rwlock.Locker
	handle    func(ctx context.Context, attempt int) error
	failed    func(error) // what the framework's own handler of errors gets
}

// frameworks start a program and return how to submit a job that may be attempted so often.
var frameworks = map[string]func(t *testing.T, p program) (submit func(attempts int)){
	"river":     startRiver,
	"asynq":     startAsynq,
	"watermill": startWatermill,
	"cron":      startCron,
}

type deposit struct{}

func (deposit) Kind() string { return "deposit" }

type depositor struct {
	river.WorkerDefaults[deposit]
	work func(context.Context, *river.Job[deposit]) error
}

func (d depositor) Work(ctx context.Context, job *river.Job[deposit]) error { return d.work(ctx, job) }

type riverErrors func(error)

func (r riverErrors) HandleError(_ context.Context, _ *rivertype.JobRow, err error) *river.ErrorHandlerResult {
	r(err)
	return nil
}

func (r riverErrors) HandlePanic(context.Context, *rivertype.JobRow, any, string) *river.ErrorHandlerResult {
	r(errors.New("panic"))
	return nil
}

type soon struct{}

func (soon) NextRetry(*rivertype.JobRow) time.Time { return time.Now().Add(100 * time.Millisecond) }

func startRiver(t *testing.T, p program) func(int) {
	work := func(ctx context.Context, job *river.Job[deposit]) error { return p.handle(ctx, job.Attempt) }
	return runRiver(t, openPool(t), p, work)
}

func openPool(t *testing.T) *pgxpool.Pool {
	pool := expect.NoError(pgxpool.New(t.Context(), postgres.Database(t))).In(t)
	t.Cleanup(pool.Close)
	return pool
}

func runRiver(
	t *testing.T, pool *pgxpool.Pool, p program, work func(context.Context, *river.Job[deposit]) error,
) func(int) {
	silent := slog.New(slog.DiscardHandler)
	migrator := expect.NoError(rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: silent})).In(t)
	expect.NoError(migrator.Migrate(t.Context(), rivermigrate.DirectionUp, nil)).In(t)
	var last *river.Client[pgx.Tx]
	for _, locker := range p.processes {
		lockOf := func(*rivertype.JobRow) string { return name }
		workers := river.NewWorkers()
		river.AddWorker(workers, depositor{work: work})
		client := expect.NoError(river.NewClient(riverpgxv5.New(pool), &river.Config{
			Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 2}},
			Workers:           workers,
			Middleware:        []rivertype.Middleware{riverlock.Exclusive(locker, lockOf)},
			ErrorHandler:      riverErrors(p.failed),
			RetryPolicy:       soon{},
			FetchPollInterval: 100 * time.Millisecond,
			Logger:            silent,
		})).In(t)
		require.NoError(t, client.Start(t.Context()))
		t.Cleanup(func() { require.NoError(t, client.Stop(context.Background())) })
		last = client
	}
	return func(attempts int) {
		expect.NoError(last.Insert(t.Context(), deposit{}, &river.InsertOpts{MaxAttempts: attempts})).In(t)
	}
}

type silent struct{}

func (silent) Debug(...any) {}
func (silent) Info(...any)  {}
func (silent) Warn(...any)  {}
func (silent) Error(...any) {}
func (silent) Fatal(...any) {}

func startAsynq(t *testing.T, p program) func(int) {
	redis := asynq.RedisClientOpt{Addr: miniredis.RunT(t).Addr()}
	for _, locker := range p.processes {
		mux := asynq.NewServeMux()
		mux.Use(asynqlock.Exclusive(locker, func(*asynq.Task) string { return name }))
		mux.HandleFunc("deposit", func(ctx context.Context, _ *asynq.Task) error {
			retried, _ := asynq.GetRetryCount(ctx)
			return p.handle(ctx, retried+1)
		})
		server := asynq.NewServer(redis, asynq.Config{
			Concurrency: 2,
			IsFailure:   asynqlock.IsFailure,
			RetryDelayFunc: func(retried int, err error, task *asynq.Task) time.Duration {
				if asynqlock.IsFailure(err) {
					return time.Millisecond
				}
				return asynqlock.RetryDelay(retried, err, task)
			},
			ErrorHandler: asynq.ErrorHandlerFunc(func(_ context.Context, _ *asynq.Task, err error) {
				p.failed(err)
			}),
			TaskCheckInterval:        10 * time.Millisecond,
			DelayedTaskCheckInterval: 10 * time.Millisecond,
			Logger:                   silent{},
		})
		require.NoError(t, server.Start(mux))
		t.Cleanup(server.Shutdown)
	}
	client := asynq.NewClient(redis)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return func(attempts int) {
		expect.NoError(client.Enqueue(asynq.NewTask("deposit", nil), asynq.MaxRetry(attempts-1))).In(t)
	}
}

func startWatermill(t *testing.T, p program) func(int) {
	messages := gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{})
	router := expect.NoError(message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})).In(t)
	router.AddMiddleware(func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			produced, err := next(msg)
			if err != nil {
				p.failed(err)
			}
			return produced, err
		}
	})
	topics := make(chan string, len(p.processes)) // the one that is next
	for i, locker := range p.processes {
		topic := string(rune('a' + i))
		handler := router.AddConsumerHandler(topic, topic, messages, func(msg *message.Message) error {
			return p.handle(msg.Context(), 1)
		})
		handler.AddMiddleware(watermilllock.Exclusive(locker, patience, func(*message.Message) string { return name }))
		topics <- topic
	}
	ended := make(chan error, 1)
	go func() { ended <- router.Run(context.Background()) }()
	t.Cleanup(func() {
		require.NoError(t, router.Close())
		require.NoError(t, await(t, "the router's end", ended))
	})
	await(t, "the router", router.Running())
	return func(int) {
		topic := <-topics
		topics <- topic
		require.NoError(t, messages.Publish(topic, message.NewMessage(watermill.NewUUID(), nil)))
	}
}

// startCron runs a job at each second: cron knows no attempts, so the next tick is the next one.
func startCron(t *testing.T, p program) func(int) {
	ctx, cancel := context.WithCancel(context.Background())
	submit := make(chan func(), len(p.processes))
	redis := miniredis.RunT(t)
	for _, locker := range p.processes {
		client := expect.NoError(rwlock.Dial(redis.Addr(), rueidis.ClientOption{})).In(t)
		t.Cleanup(client.Close)
		scheduler := cron.New()
		jobs := cronlock.Jobs{
			Scheduler: scheduler, Ticks: expect.NoError(ticks.New(client)).In(t),
			Failed: func(err error) {
				if ctx.Err() == nil && !errors.Is(err, rwlock.ErrNotAcquired) { // the end of the test may cut a tick off
					p.failed(err)
				}
			},
		}
		submit <- func() {
			jobs.Schedule(ctx, cron.Every(time.Second), name, func(ctx context.Context) error { return p.handle(ctx, 1) },
				ticks.WithoutOverlap(locker))
		}
		scheduler.Start()
		t.Cleanup(func() { <-scheduler.Stop().Done() })
	}
	t.Cleanup(cancel)
	return func(int) { (<-submit)() }
}

// onEachFramework runs a test for each of them, all at the same time: they wait more than they work.
func onEachFramework(t *testing.T, test func(t *testing.T, start func(*testing.T, program) func(int))) {
	for framework, start := range frameworks {
		t.Run(framework, func(t *testing.T) {
			t.Parallel()
			test(t, start)
		})
	}
}

// Two jobs in two processes: the second one begins after the first, which ends only when the second was not let in.
// That costs no attempt, neither the only one that a job has nor one of several.
func TestJobsOfOneLockRunOneAtATime(t *testing.T) {
	onEachFramework(t, func(t *testing.T, start func(*testing.T, program) func(int)) {
		for _, attempts := range []int{1, 3} {
			requireOneAtATime(t, start, attempts)
		}
	})
}

func requireOneAtATime(t *testing.T, start func(*testing.T, program) func(int), attempts int) {
	keptOut := make(chan struct{}, 1)
	note := func(_ context.Context, e rwlock.TraceEvent) {
		if e.Name == name {
			select {
			case keptOut <- struct{}{}:
			default:
			}
		}
	}
	trace := rwlock.WithTrace(&rwlock.Trace{
		Waiting: note, Failed: func(ctx context.Context, e rwlock.TraceEvent, _ error) { note(ctx, e) },
	})
	locks := locktest.New(t, trace)
	var inside, runs atomic.Int32
	var overlap atomic.Bool
	second := make(chan struct{})
	submit := start(t, program{
		processes: []*rwlock.Locker{locks.Locker, locks.Another(trace)},
		handle: func(_ context.Context, attempt int) error {
			if attempt != 1 {
				t.Error("a job that did not run was counted as an attempt")
			}
			defer inside.Add(-1)
			if inside.Add(1) > 1 {
				overlap.Store(true)
			}
			switch runs.Add(1) {
			case 1:
				select {
				case <-keptOut:
				case <-second:
				case <-t.Context().Done():
				}
			case 2:
				close(second)
			}
			return nil
		},
		failed: func(err error) {
			if !errors.Is(err, asynqlock.ErrBusy) {
				t.Error(err)
			}
		},
	})
	submit(attempts)
	submit(attempts)
	await(t, "the second job", second)
	require.False(t, overlap.Load())
}

// failures are the errors that a framework reports.
type failures chan error

func (f failures) add(err error) {
	select {
	case f <- err:
	default: // nobody waits for one any more
	}
}

// until returns when there was one that matches.
func (f failures) until(t *testing.T, target error) {
	t.Helper()
	for {
		err := await(t, "an error", f)
		if errors.Is(err, target) {
			return
		}
		require.ErrorIs(t, err, asynqlock.ErrBusy)
	}
}

// A job whose lock is lost is told so, and fails although its handler returns nil. It is run again.
func TestALostLockFailsTheJob(t *testing.T) {
	onEachFramework(t, func(t *testing.T, start func(*testing.T, program) func(int)) {
		locks := locktest.New(t)
		var runs atomic.Int32
		began, again, causes, failed := make(chan int), make(chan int), make(chan error, 1), make(failures, 100)
		submit := start(t, program{
			processes: []*rwlock.Locker{locks.Locker},
			handle: func(ctx context.Context, _ int) error {
				switch runs.Add(1) {
				case 1:
					close(began)
					<-ctx.Done()
					causes <- context.Cause(ctx)
				case 2:
					close(again)
				}
				return nil
			},
			failed: failed.add,
		})
		submit(2)
		await(t, "the job", began)
		locks.Lose(name)
		require.ErrorIs(t, await(t, "the end of its context", causes), rwlock.ErrLost)
		failed.until(t, rwlock.ErrLost)
		await(t, "the second attempt", again)
	})
}

// A job that was paused beyond its TTL writes nothing once a newer holder has written. It fails and is run again.
func TestAStaleTokenFailsTheJob(t *testing.T) {
	onEachFramework(t, func(t *testing.T, start func(*testing.T, program) func(int)) {
		const ttl = time.Hour // nothing is renewed before the end of the test
		locks := locktest.New(t, rwlock.WithTTL(ttl))
		var guard fencing.Watermark
		written := make(chan string, 10)
		write := func(ctx context.Context, who string) error {
			fence, err := fencing.Require(ctx, name)
			if err != nil {
				return err
			}
			return guard.Do(ctx, fence, func(context.Context) error {
				written <- who
				return nil
			})
		}
		var runs atomic.Int32
		began, resume, failed := make(chan int), make(chan int), make(failures, 100)
		submit := start(t, program{
			processes: []*rwlock.Locker{locks.Locker},
			handle: func(ctx context.Context, _ int) error {
				if runs.Add(1) == 1 {
					close(began)
					select {
					case <-resume:
					case <-t.Context().Done():
					}
				}
				return write(ctx, "the job")
			},
			failed: failed.add,
		})
		submit(2)
		await(t, "the job", began)
		locks.Advance(ttl + time.Minute)
		ran, err := locks.Another().TryDo(t.Context(), name, func(ctx context.Context) error {
			return write(ctx, "a newer holder")
		})
		require.NoError(t, err)
		require.True(t, ran)
		close(resume)
		failed.until(t, fencing.ErrStale)
		require.Equal(t, "a newer holder", await(t, "a write", written))
		require.Equal(t, "the job", await(t, "the second attempt", written))
	})
}
