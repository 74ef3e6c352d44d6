// Command config reads a configuration in any number of processes, and changes it. Each reader keeps a copy in its
// memory, which is never out of date: as long as a reader may use its copy, it has the lock, and no process can write.
//
//	go run ./config -redis 127.0.0.1:6379
//	go run ./config -redis 127.0.0.1:6379 -set 'limit=3 colour=blue'
//
// Reads cost no command while no process writes: WithLinger keeps the lock between two reads. A writer gets the lock at
// once, because the readers give it up. After kill -9 of the writer they wait until its TTL is over. Then they see the
// configuration from before, or the new one, and never a part of it, because the writer stores it in one step.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/redisguard"
	"github.com/seed74116694/fencelock/rwlock"
)

func main() {
	redis := flag.String("redis", "127.0.0.1:6379", "the address of the Redis")
	ttl := flag.Duration("ttl", 5*time.Second, "how long a process that has died is waited for")
	set := flag.String("set", "", "the new configuration; without it this process reads")
	work := flag.Duration("work", 0, "how long the writer takes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *redis, *ttl, *set, *work); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, redis string, ttl time.Duration, set string, work time.Duration) error {
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
	guard, err := redisguard.New(client)
	if err != nil {
		return err
	}
	if set != "" {
		return locker.Do(ctx, "config", func(ctx context.Context) error { return change(ctx, guard, set, work) })
	}
	c := config{mu: locker.RWMutex("config", rwlock.WithLinger(time.Minute)), guard: guard}
	reads, last := 0, ""
	for ; ctx.Err() == nil; time.Sleep(time.Millisecond) {
		if now, err := c.read(ctx); err != nil {
			log.Print(err) // Redis does not answer, or the lock was lost: the next read tries again
		} else if reads++; now != last {
			fmt.Println("config", now)
			last = now
		} else if reads%1000 == 0 {
			fmt.Println("reads", reads)
		}
	}
	return nil
}

// change stores a configuration under the lock for writing.
func change(ctx context.Context, guard *redisguard.Guard, to string, work time.Duration) error {
	fence, err := fencing.Require(ctx, "config")
	if err != nil {
		return err
	}
	fmt.Println("changing", fence.Token)
	select {
	case <-time.After(work):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return guard.Set(ctx, fence, "config", to, 0)
}

// config is read by any number of goroutines.
type config struct {
	mu    *rwlock.RWMutex
	guard *redisguard.Guard
	copy  atomic.Pointer[copied]
}

type copied struct {
	token fencing.Token // of the readers that have seen it
	text  string
}

// read returns the copy, or loads it. The token of the readers stays the same until a process has written.
func (c *config) read(ctx context.Context) (text string, err error) {
	err = c.mu.RDo(ctx, func(ctx context.Context) error {
		fence, err := fencing.Require(ctx, "config")
		if err != nil {
			return err
		}
		if has := c.copy.Load(); has != nil && has.token == fence.Token {
			text = has.text
			return nil
		}
		text, err = c.guard.Get(ctx, fence, "config")
		if err != nil && !rueidis.IsRedisNil(err) { // nil: there is no configuration yet
			return err
		}
		c.copy.Store(&copied{fence.Token, text})
		return nil
	})
	return text, err
}
