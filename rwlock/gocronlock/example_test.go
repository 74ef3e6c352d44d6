package gocronlock_test

import (
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/go-co-op/gocron/v2"
	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/rwlock/gocronlock"
)

// A job that one of many processes runs at each tick. Each process does the same.
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
