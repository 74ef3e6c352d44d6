// Command leader has one of its processes lead. Each process waits for a lock, and leads while it holds it:
//
//	go run ./leader -redis 127.0.0.1:6379
//
// SIGTERM makes the leader resign, and the next process in the queue leads at once. After kill -9, or if the leader
// loses Redis, the next one leads when the TTL is over.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os/signal"
	"syscall"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/rwlock"
)

func main() {
	redis := flag.String("redis", "127.0.0.1:6379", "the address of the Redis")
	ttl := flag.Duration("ttl", 5*time.Second, "how long a leader that has died is waited for")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *redis, *ttl); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, redis string, ttl time.Duration) error {
	locker, err := rwlock.Open(redis, rwlock.WithTTL(ttl))
	if err != nil {
		return err
	}
	defer locker.Close()
	for ctx.Err() == nil {
		err := locker.Do(ctx, "leader", lead)
		switch {
		case ctx.Err() != nil: // resigned, and the lock is given back
		case errors.Is(err, rwlock.ErrLost):
			log.Print("deposed: ", err) // stand for election again
		default:
			log.Print("election: ", err)
			time.Sleep(time.Second)
		}
	}
	return nil
}

// lead does the work of the leader until its context ends: at a signal, or when the lock is lost. Whatever it writes
// carries the fence, so that a storage can refuse a leader that was paused.
func lead(ctx context.Context) error {
	fence, err := fencing.Require(ctx, "leader")
	if err != nil {
		return err
	}
	fmt.Println("leading", fence.Token)
	<-ctx.Done()
	fmt.Println("resigning", fence.Token)
	return context.Cause(ctx)
}
