// Command queue works off a list of jobs in Redis, in any number of processes:
//
//	go run ./queue -redis 127.0.0.1:6379
//	redis-cli RPUSH '{jobs}:pending' 7 8 9
//
// A job stays in the list until it is done, and each worker holds the lock of its job. The lock is renewed for as long
// as the worker lives, so a job may take any time, and after kill -9 another worker begins it again when the TTL is
// over. The result is stored under the fence, in one step with the end of the job: a worker that was paused inside a
// job stores nothing when it goes on.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/redisguard"
	"github.com/seed74116694/fencelock/rwlock"
)

func main() {
	redis := flag.String("redis", "127.0.0.1:6379", "the address of the Redis")
	ttl := flag.Duration("ttl", 5*time.Second, "how long a worker that has died is waited for")
	poll := flag.Duration("poll", time.Second, "how often a worker without a job looks for one")
	work := flag.Duration("work", time.Second, "how long a job takes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *redis, *ttl, *poll, *work); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, redis string, ttl, poll, work time.Duration) error {
	client, err := rwlock.Dial(redis, rueidis.ClientOption{})
	if err != nil {
		return err
	}
	defer client.Close()
	locker, err := rwlock.New(client, rwlock.WithTTL(ttl))
	if err != nil {
		return err
	}
	defer locker.Close()
	guard, err := redisguard.New(client, redisguard.WithRegisterTTL(24*time.Hour)) // longer than any pause of a worker
	if err != nil {
		return err
	}
	w := worker{client, locker, guard, work}
	for ctx.Err() == nil {
		if !w.workOff(ctx) {
			select {
			case <-time.After(poll):
			case <-ctx.Done():
			}
		}
	}
	return nil
}

type worker struct {
	client rueidis.Client
	locks  *rwlock.Locker
	guard  *redisguard.Guard
	work   time.Duration
}

const pending, done = "{jobs}:pending", "{jobs}:done"

// workOff does the first jobs that no other worker has, and reports whether there were any.
func (w worker) workOff(ctx context.Context) (any bool) {
	jobs, err := w.client.Do(ctx, w.client.B().Lrange().Key(pending).Start(0).Stop(99).Build()).AsStrSlice()
	if err != nil {
		log.Print(err)
	}
	for _, job := range jobs {
		ran, err := w.locks.TryDo(ctx, "jobs/"+job, func(ctx context.Context) error { return w.do(ctx, job) })
		if err != nil {
			log.Print(err) // the job is still in the list
		}
		any = any || ran && err == nil
	}
	return any
}

// finish stores the result of a job and takes the job off the list, unless another worker has.
var finish = redisguard.NewScript(`
if redis.call('LREM', KEYS[1], 1, ARGV[1]) == 0 then return 0 end
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
return 1`)

// do does a job under its lock.
func (w worker) do(ctx context.Context, job string) error {
	fence, err := fencing.Require(ctx, "jobs/"+job)
	if err != nil {
		return err
	}
	position := w.client.Do(ctx, w.client.B().Lpos().Key(pending).Element(job).Build())
	if rueidis.IsRedisNil(position.Error()) {
		return nil // done since the list was read
	}
	fmt.Println("working", job)
	select {
	case <-time.After(w.work):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	reply, err := w.guard.Do(ctx, fence, finish, []string{pending, done}, []string{job, "the result"})
	if first, _ := reply.AsBool(); err == nil && first {
		fmt.Println("done", job)
	}
	return err
}
