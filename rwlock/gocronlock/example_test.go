package gocronlock_test

import (
	"context"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/go-co-op/gocron/v2"
	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/rwlock/gocronlock"
	"github.com/seed74116694/fencelock/ticks"
)

// A job that one of many processes runs at each tick, claimed by the time at which it is due.
func ExampleTask() {
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

	ran := make(chan string, 2)
	scheduler, err := gocron.NewScheduler()
	if err != nil {
		panic(err)
	}
	due := func(now time.Time) time.Time { return now.Truncate(time.Hour) } // of the example: it starts at any time
	report := func(ctx context.Context) error {
		_, err := fencing.Require(ctx, "ticks/report")
		ran <- "report"
		return err
	}
	_, err = scheduler.NewJob(gocron.DurationJob(time.Hour), gocronlock.Task(t, "report", due, report),
		gocron.WithStartAt(gocron.WithStartImmediately()))
	if err != nil {
		panic(err)
	}
	scheduler.Start()
	fmt.Println(<-ran)
	fmt.Println(scheduler.Shutdown())
	// Output:
	// report
	// <nil>
}

// The same by a lock. Each process does the same.
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
	locker, err := rwlock.New(client)
	if err != nil {
		panic(err)
	}
	defer locker.Close()

	ran := make(chan string, 1)
	oncePerTick, err := gocronlock.NewLocker(locker, 30*time.Minute)
	if err != nil {
		panic(err)
	}
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(oncePerTick))
	if err != nil {
		panic(err)
	}
	report := func() { ran <- "report" }
	_, err = scheduler.NewJob(gocron.DurationJob(time.Hour), gocron.NewTask(report),
		gocron.WithName("report"), gocron.WithStartAt(gocron.WithStartImmediately()))
	if err != nil {
		panic(err)
	}
	scheduler.Start()
	fmt.Println(<-ran)
	fmt.Println(scheduler.Shutdown())
	// Output:
	// report
	// <nil>
}
