package redisguard_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/redisguard"
	"github.com/seed74116694/fencelock/rwlock"
)

// cron runs a job once per tick, whichever of many processes is the first.
type cron struct {
	guard  *redisguard.Guard
	job    string
	period time.Duration
}

// claimTick gives a tick to the first attempt that asks for it. The same attempt may ask again, with the same answer.
// The guard has refused older ticks by then.
var claimTick = redisguard.NewScript(`
local claimed = redis.call('HMGET', KEYS[1], 'tick', 'attempt')
if claimed[1] ~= ARGV[1] then
  redis.call('HSET', KEYS[1], 'tick', ARGV[1], 'attempt', ARGV[2])
  return 1
end
return claimed[2] == ARGV[2] and 1 or 0`)

// tick runs work if no process has claimed the tick yet. Its number, which is the fence of the work too, is the time at
// which it is due, the same in every process. While the server does not answer, the claim is tried for a period. The
// work has no limit but that of ctx.
func (c cron) tick(ctx context.Context, due time.Time, work func(context.Context) error) (ran bool, err error) {
	f := fencing.Fence{Resource: "cron/" + c.job, Token: fencing.Token(due.UnixMicro()), Mode: fencing.Write}
	keys, args := []string{"cron:{" + c.job + "}"}, []string{f.Token.String(), rand.Text()}
	claiming, cancel := context.WithTimeout(ctx, c.period)
	defer cancel()
	for {
		reply, err := c.guard.Do(claiming, f, claimTick, keys, args)
		switch {
		case err == nil:
			if first, err := reply.AsBool(); err != nil || !first {
				return false, err
			}
			return true, work(fencing.NewContext(ctx, f))
		case errors.Is(err, fencing.ErrStale):
			return false, nil // a later tick has been claimed
		case errors.Is(err, fencing.ErrMalformed) || errors.Is(err, redisguard.ErrEvicts):
			return false, err
		}
		select { // the claim may have been made, and its answer lost
		case <-time.After(50 * time.Millisecond):
		case <-claiming.Done():
			return false, err
		}
	}
}

// A job that runs once per tick, in one of many processes whose clocks differ: the tick is claimed by its number, so no
// time has to be kept free of it.
func Example_cron() {
	client, end := exampleClient()
	defer end()
	guard, err := redisguard.New(client)
	if err != nil {
		panic(err)
	}
	const period = time.Hour
	due := time.Date(2026, 11, 1, 3, 0, 0, 0, time.UTC) // time.Now().Truncate(period), in each process
	for _, process := range []string{"the first", "one that is 50 ms late"} {
		ran, err := cron{guard, "report", period}.tick(context.Background(), due, func(ctx context.Context) error {
			fence, err := fencing.Require(ctx, "cron/report") // of this tick, for the storage
			fmt.Println(process, "runs the job with token", fence.Token, err)
			return nil
		})
		fmt.Println(ran, err)
	}
	ran, err := cron{guard, "report", period}.tick(context.Background(), due.Add(-time.Hour), nil) // one that was paused
	fmt.Println(ran, err)
	// Output:
	// the first runs the job with token 1793502000000000 <nil>
	// true <nil>
	// false <nil>
	// false <nil>
}

// cronLock runs a job once per tick under a lock that stays taken for a while after the job has ended.
type cronLock struct {
	locker *rwlock.Locker
	job    string
}

// tick runs work if no process has the lock of the tick. It goes on asking for a moment: over a quorum attempts that
// are made at the same time may all be refused, and an attempt whose answer is lost may refuse the next one until it is
// given back. The moment adds to the time by which clocks may differ.
func (c cronLock) tick(ctx context.Context, work func(context.Context) error) (ran bool, err error) {
	for begun := time.Now(); ; {
		ran, err := c.locker.TryDo(ctx, c.job, work, rwlock.WithTTL(time.Second),
			rwlock.WithMinHold(time.Second)) // at ticks 2 s apart
		if ran || time.Since(begun) > 100*time.Millisecond {
			return ran, err
		}
		select {
		case <-time.After(10*time.Millisecond + mathrand.N(20*time.Millisecond)):
		case <-ctx.Done():
			return false, err
		}
	}
}

// The same by a lock: it stays taken when the job has ended, until each clock has passed the tick.
func Example_cronByLock() {
	client, end := exampleClient()
	defer end()
	locker, err := rwlock.New(client)
	if err != nil {
		panic(err)
	}
	defer func() { _ = locker.Close() }()
	for _, process := range []string{"the first", "one that is 50 ms late"} {
		ran, err := cronLock{locker, "report"}.tick(context.Background(), func(context.Context) error {
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
