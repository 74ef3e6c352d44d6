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
	"crypto/rand"
	"errors"
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
	period := flag.Duration("period", time.Minute, "the time between two ticks")
	work := flag.Duration("work", time.Second, "how long the report takes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	client, err := rwlock.Dial(*redis, rueidis.ClientOption{})
	if client == nil {
		log.Fatal(err)
	}
	defer client.Close()
	if err != nil {
		log.Print(err) // the client connects when Redis answers
	}
	guard, err := redisguard.New(client)
	if err != nil {
		log.Fatal(err)
	}
	c := cron{guard, *period, *work}
	for ctx.Err() == nil {
		due := time.Now().Truncate(c.period).Add(c.period)
		select {
		case <-time.After(time.Until(due)):
			if err := c.tick(ctx, due); err != nil {
				log.Print(err)
			}
		case <-ctx.Done():
		}
	}
}

type cron struct {
	guard        *redisguard.Guard
	period, work time.Duration
}

// claim gives a tick to the first attempt that asks for it, and gives the same attempt the same answer again: the first
// answer may have been lost. The guard has refused the ticks before the newest one by then.
var claim = redisguard.NewScript(`
local claimed = redis.call('HMGET', KEYS[1], 'tick', 'attempt')
if claimed[1] ~= ARGV[1] then
  redis.call('HSET', KEYS[1], 'tick', ARGV[1], 'attempt', ARGV[2])
  return 1
end
return claimed[2] == ARGV[2] and 1 or 0`)

// tick makes the report unless another process has claimed the tick. While Redis does not answer it tries for a period.
func (c cron) tick(ctx context.Context, due time.Time) error {
	f := fencing.Fence{Resource: "cron/report", Token: fencing.Token(due.UnixMicro()), Mode: fencing.Write}
	keys, args := []string{"cron:{report}"}, []string{f.Token.String(), rand.Text()}
	claiming, cancel := context.WithTimeout(ctx, c.period)
	defer cancel()
	for {
		reply, err := c.guard.Do(claiming, f, claim, keys, args)
		switch {
		case err == nil:
			if first, err := reply.AsBool(); err != nil || !first {
				return err
			}
			return c.report(ctx, f)
		case errors.Is(err, fencing.ErrStale): // a later tick has been claimed
			return nil
		case errors.Is(err, redisguard.ErrEvicts): // nothing protects the claims: see the policy of the server
			return err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-claiming.Done():
			return err
		}
	}
}

// report is the job. What it writes has the fence of the tick: from the claim of the next tick on it is refused, so a
// run that was paused does not replace a newer report.
func (c cron) report(ctx context.Context, f fencing.Fence) error {
	fmt.Println("running", f.Token)
	select {
	case <-time.After(c.work):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := c.guard.Set(ctx, f, "report:{report}", "made for "+f.Token.String(), 0); err != nil {
		return err
	}
	fmt.Println("done", f.Token)
	return nil
}
