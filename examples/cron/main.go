// Command cron runs a job once per tick, in one of any number of processes:
//
//	go run ./cron -redis 127.0.0.1:6379 -period 1m
//
// A process claims the tick by its number, the time at which it is due, which is the same in all processes. So no tick
// runs twice, however far their clocks are apart. A run that is ended by kill -9 counts, and another process runs the
// next tick. docs/integrations.md explains the claim, and has the same by a lock.
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
	"github.com/seed74116694/fencelock/ticks"
)

func main() {
	redis := flag.String("redis", "127.0.0.1:6379", "the address of the Redis")
	period := flag.Duration("period", time.Minute, "the time between two ticks")
	work := flag.Duration("work", time.Second, "how long the report takes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	client, err := rwlock.Dial(*redis, rueidis.ClientOption{})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	guard, err := redisguard.New(client)
	if err != nil {
		log.Fatal(err)
	}
	t, err := ticks.New(client)
	if err != nil {
		log.Fatal(err)
	}
	c := cron{guard, *work}
	for due := range t.Every(ctx, *period) {
		// While Redis does not answer, Do asks for a period. A tick that another process has claimed is no error.
		if _, err := t.Do(ctx, "report", due, c.report, ticks.Within(*period)); err != nil {
			log.Print(err)
		}
	}
}

type cron struct {
	guard *redisguard.Guard
	work  time.Duration
}

// report is the job. What it writes has the fence of the tick. Its key has the job's name as the hash tag, so the claim
// of the next tick refuses a run that was paused, and it does not replace a newer report.
func (c cron) report(ctx context.Context) error {
	f, err := fencing.Require(ctx, "ticks/report")
	if err != nil {
		return err
	}
	fmt.Println("running", f.Token)
	select {
	case <-time.After(c.work):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := c.guard.Set(ctx, f, "last:{report}", "made for "+f.Token.String(), 0); err != nil {
		return err
	}
	fmt.Println("done", f.Token)
	return nil
}
