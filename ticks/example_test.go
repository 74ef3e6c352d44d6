package ticks_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/ticks"
)

// A job that runs once per tick, in one of many processes whose clocks differ.
func Example() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	client, err := rwlock.Dial(server.Addr(), rueidis.ClientOption{})
	if err != nil {
		panic(err)
	}
	defer client.Close()

	t, err := ticks.New(client)
	if err != nil {
		panic(err)
	}
	due := time.Date(2025, 11, 1, 3, 0, 0, 0, time.UTC)
	for _, process := range []string{"the first", "one that is 50 ms late"} {
		ran, err := t.Do(context.Background(), "report", due, func(ctx context.Context) error {
			fence, err := fencing.Require(ctx, "ticks/report") // of this tick, for the storage
			fmt.Println(process, "runs the job with token", fence.Token)
			return err
		})
		fmt.Println(ran, err)
	}
	_, err = t.Do(context.Background(), "report", due.Add(-time.Hour), func(context.Context) error { return nil })
	fmt.Println("one that was paused for an hour:", errors.Is(err, fencing.ErrStale))
	_, err = t.Do(context.Background(), "report", due.AddDate(100, 0, 0), func(context.Context) error { return nil })
	fmt.Println("one whose clock is wrong:", errors.Is(err, ticks.ErrAhead))
	// Output:
	// the first runs the job with token 1761966000000000
	// true <nil>
	// false <nil>
	// one that was paused for an hour: true
	// one whose clock is wrong: true
}

// tick runs work in the first process that gets the lock, at ticks that are 2 s apart. The other ones wait in the queue
// of the lock, for less than its minimum hold.
func tick(
	ctx context.Context, locker *rwlock.Locker, job string, work func(context.Context) error,
) (ran bool, err error) {
	err = locker.Do(ctx, job, func(ctx context.Context) error {
		ran = true
		return work(ctx)
	}, rwlock.WithTTL(time.Second), rwlock.WithMinHold(time.Second), rwlock.WithMaxWait(500*time.Millisecond))
	if !ran && errors.Is(err, rwlock.ErrNotAcquired) {
		return false, nil // another process has this tick
	}
	return ran, err
}

// The same by a lock, which is for several masters: it stays taken when the job has ended, until each clock has passed
// the tick.
func Example_byLock() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	locker, err := rwlock.Open(server.Addr())
	if err != nil {
		panic(err)
	}
	defer locker.Close()
	for _, process := range []string{"the first", "one that is 50 ms late"} {
		ran, err := tick(context.Background(), locker, "report", func(context.Context) error {
			fmt.Println(process, "runs the job")
			return nil
		})
		fmt.Println(ran, err)
	}
	// Output:
	// the first runs the job
	// true <nil>
	// false <nil>
}
