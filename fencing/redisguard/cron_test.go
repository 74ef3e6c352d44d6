package redisguard_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// tick runs work unless another process does, as the recipes do.
type tick func(ctx context.Context, due time.Time, work func(context.Context) error) (ran bool, err error)

// recipe makes the ticks of a process, and what ends them.
type recipe func(client rueidis.Client) (tick, func() error)

const (
	cronPeriod = 2 * time.Second
	cronOffset = 100 * time.Millisecond // between the clocks of two processes
	cronWork   = 60 * time.Millisecond
	cronCrowd  = 3 // processes
)

// cronWorld is the processes of one machine in fake time, and what they did.
type cronWorld struct {
	t      *testing.T
	mini   *testredis.Mini
	recipe recipe

	mu     sync.Mutex
	rng    *rand.Rand
	runs   map[time.Time]int
	faults map[string]int
	down   bool // a process is: another one must not be
}

func (w *cronWorld) locked(do func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	do()
}

func (w *cronWorld) draw(limit time.Duration) (drawn time.Duration) {
	w.locked(func() { drawn = time.Duration(w.rng.Int64N(int64(limit))) })
	return drawn
}

// happens counts a fault that ends a process, if it may, because the others are up.
func (w *cronWorld) happens(name string) (does bool) {
	w.locked(func() {
		if does = !w.down; does {
			w.down = true
			w.faults[name]++
		}
	})
	return does
}

// process runs ticks by a clock that is late, until the end of ctx. Some of its runs end it, in the middle: by SIGKILL,
// after which it sends nothing more to the server, or by SIGTERM, after which it ends its work and gives back what it
// has. Then it starts again.
func (w *cronWorld) process(ctx context.Context, late time.Duration) {
	for ctx.Err() == nil {
		w.life(ctx, late)
		time.Sleep(w.draw(cronPeriod))
		w.locked(func() { w.down = false })
	}
}

func (w *cronWorld) life(ctx context.Context, late time.Duration) {
	link := w.mini.NewLink()
	client, err := rueidis.NewClient(link.Option())
	require.NoError(w.t, err)
	do, closeAll := w.recipe(client)
	killed := false
	defer func() {
		if !killed {
			require.NoError(w.t, closeAll())
		}
		client.Close()
		if killed {
			_ = closeAll()
		}
	}()
	ctx, end := context.WithCancel(ctx)
	defer end()
	for {
		now := time.Now().Add(-late)
		due := now.Truncate(cronPeriod).Add(cronPeriod)
		select {
		case <-time.After(due.Sub(now)):
		case <-ctx.Done():
			return
		}
		if w.draw(10) == 0 {
			link.DropNextReply(testredis.Named("EVALSHA"))
		}
		_, err := do(context.WithoutCancel(ctx), due, func(context.Context) error {
			w.locked(func() { w.runs[due]++ })
			time.Sleep(w.draw(cronWork))
			switch w.draw(8) {
			case 0:
				if w.happens("killed") {
					link.Refuse() // nothing leaves the process any more
					link.Cut()
					killed = true
					end()
					return errors.New("killed")
				}
			case 1:
				if w.happens("terminated") {
					end()
				}
			}
			time.Sleep(w.draw(cronWork))
			return nil
		})
		require.True(w.t, err == nil || killed, "%v", err)
	}
}

// cronRuns lets processes with clocks apart run ticks, and returns how often each of them ran.
func cronRuns(t *testing.T, ticks int, r recipe) (runs map[time.Time]int) {
	synctest.Test(t, func(t *testing.T) {
		w := &cronWorld{
			t: t, mini: testredis.NewMini(t), recipe: r, rng: rand.New(rand.NewPCG(1, 0)),
			runs: map[time.Time]int{}, faults: map[string]int{},
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(ticks)*cronPeriod+cronPeriod/2)
		defer cancel()
		var workers sync.WaitGroup
		for i := range cronCrowd {
			workers.Go(func() { w.process(ctx, time.Duration(i)*cronOffset) })
		}
		workers.Wait()
		require.Len(t, w.faults, 2, "%v", w.faults)
		runs = w.runs
	})
	return runs
}

// A run that was killed counts as one.
func TestCronRunsEachTickOnce(t *testing.T) {
	for name, r := range map[string]recipe{
		"register": func(client rueidis.Client) (tick, func() error) {
			return cron{newGuard(t, client), "report", cronPeriod}.tick, func() error { return nil }
		},
		"lock": func(client rueidis.Client) (tick, func() error) {
			locker, err := rwlock.New(client)
			require.NoError(t, err)
			c := cronLock{locker, "report"}
			return func(ctx context.Context, _ time.Time, work func(context.Context) error) (bool, error) {
				return c.tick(ctx, work)
			}, locker.Close
		},
	} {
		t.Run(name, func(t *testing.T) {
			const ticks = 100
			runs := cronRuns(t, ticks, r)
			require.GreaterOrEqual(t, len(runs), ticks)
			all := slices.SortedFunc(maps.Keys(runs), time.Time.Compare)
			for due := all[0]; !due.After(all[len(all)-1]); due = due.Add(cronPeriod) {
				require.Equal(t, 1, runs[due], "the tick at %v", due)
			}
		})
	}
}

// Without a claim each process runs each tick: the test would notice.
func TestCronWithoutAClaimRunsTicksTwice(t *testing.T) {
	runs := cronRuns(t, 20, func(rueidis.Client) (tick, func() error) {
		return func(ctx context.Context, _ time.Time, work func(context.Context) error) (bool, error) {
			return true, work(ctx)
		}, func() error { return nil }
	})
	twice := 0
	for _, n := range runs {
		if n > 1 {
			twice++
		}
	}
	require.Greater(t, twice, 10, fmt.Sprint(runs))
}

// The time for the claim is no limit of the work: a run may take longer than a period.
func TestCronBoundsOnlyTheClaim(t *testing.T) {
	client, end := exampleClient()
	defer end()
	c := cron{newGuard(t, client), "report", time.Minute}
	ran, err := c.tick(t.Context(), time.Now(), func(ctx context.Context) error {
		_, limited := ctx.Deadline()
		require.False(t, limited)
		return nil
	})
	require.NoError(t, err)
	require.True(t, ran)
}
