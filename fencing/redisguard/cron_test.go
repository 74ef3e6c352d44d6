package redisguard_test

import (
	"context"
	"errors"
	"flag"
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

	"github.com/seed74116694/fencelock/fencing/redisguard"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

var cronSeeds = flag.Uint64("redisguard.seeds", 1, "how many seeds of 200 ticks are simulated, for each recipe")

// tick runs work unless another process does, as the recipes do.
type tick func(ctx context.Context, due time.Time, work func(context.Context) error) (ran bool, err error)

const (
	cronPeriod = 2 * time.Second
	cronOffset = 100 * time.Millisecond // between the clocks of two processes
	cronWork   = 60 * time.Millisecond
	cronCrowd  = 3 // processes
)

// atEachTick calls tick when each tick is due by a clock that is late, until ctx ends.
func atEachTick(ctx context.Context, late time.Duration, run func(due time.Time)) {
	for {
		now := time.Now().Add(-late)
		due := now.Truncate(cronPeriod).Add(cronPeriod)
		select {
		case <-time.After(due.Sub(now)):
			run(due)
		case <-ctx.Done():
			return
		}
	}
}

// cronWorld is the processes of one machine in fake time, and what they did.
type cronWorld struct {
	t      *testing.T
	mini   *testredis.Mini
	recipe func(client rueidis.Client) (tick, func() error)
	rng    *rand.Rand

	mu      sync.Mutex
	runs    map[time.Time]int
	got     map[time.Time][]string // by the processes
	faults  map[string]int
	down    bool // a process is: another one must not be
	workers sync.WaitGroup
}

// mayEnd reports whether a process may end, because the others are up. It is up again when the caller says so.
func (w *cronWorld) mayEnd() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	may := !w.down
	w.down = true
	return may
}

// happened counts a fault, or a run.
func (w *cronWorld) happened(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults[name]++
}

// process runs ticks until the end of ctx. Some of its runs end it, in the middle: by SIGKILL, after which it sends
// nothing more to the server, or by SIGTERM, after which it ends its work and gives back what it has. Then it starts
// again.
func (w *cronWorld) process(ctx context.Context, late time.Duration) {
	defer w.workers.Done()
	for ctx.Err() == nil {
		w.life(ctx, late)
		time.Sleep(w.draw(cronPeriod))
		w.mu.Lock()
		w.down = false
		w.mu.Unlock()
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
	atEachTick(ctx, late, func(due time.Time) {
		if w.draw(10) == 0 {
			lost := link.DropNextReply(func(cmd []string) bool { return cmd[0] == "EVALSHA" })
			defer func() {
				select {
				case <-lost:
					w.happened("reply lost")
				default:
				}
			}()
		}
		ran, err := do(context.WithoutCancel(ctx), due, func(context.Context) error {
			w.mu.Lock()
			w.runs[due]++
			w.mu.Unlock()
			time.Sleep(w.draw(cronWork))
			switch kind := w.draw(8); {
			case kind > 1 || !w.mayEnd():
			case kind == 0:
				w.happened("killed")
				link.Refuse() // nothing leaves the process any more
				link.Cut()
				killed = true
				end()
				return errors.New("killed")
			default:
				w.happened("terminated")
				end()
			}
			time.Sleep(w.draw(cronWork))
			return nil
		})
		require.True(w.t, err == nil || killed, "%v", err)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.got[due] = append(w.got[due], fmt.Sprintf("the clock late by %v: ran %t, %v", late, ran, err))
	})
}

func (w *cronWorld) draw(limit time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Duration(w.rng.Int64N(int64(limit)))
}

// cronRuns lets processes with clocks apart run ticks, and returns how often each of them ran.
func cronRuns(
	t *testing.T, ticks int, seed uint64, recipe func(client rueidis.Client) (tick, func() error),
) (runs map[time.Time]int) {
	synctest.Test(t, func(t *testing.T) {
		w := &cronWorld{
			t: t, mini: testredis.NewMini(t), recipe: recipe,
			runs: map[time.Time]int{}, got: map[time.Time][]string{}, faults: map[string]int{},
			rng: rand.New(rand.NewPCG(seed, 0)),
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(ticks)*cronPeriod+cronPeriod/2)
		defer cancel()
		for i := range cronCrowd {
			w.workers.Add(1)
			go w.process(ctx, time.Duration(i)*cronOffset)
		}
		w.workers.Wait()
		t.Logf("seed %d: %d ticks, %v", seed, len(w.runs), w.faults)
		require.Subset(t, slices.Collect(maps.Keys(w.faults)), []string{"killed", "terminated"})
		runs = w.runs
		for due, got := range w.got {
			if runs[due] == 0 {
				t.Logf("missed %v: %v", due, got)
			}
		}
	})
	return runs
}

func byRegister(client rueidis.Client) (tick, func() error) {
	guard, err := redisguard.New(client)
	if err != nil {
		panic(err)
	}
	return cron{guard, "report", cronPeriod}.tick, func() error { return nil }
}

func byLock(client rueidis.Client) (tick, func() error) {
	locker, err := rwlock.New(client)
	if err != nil {
		panic(err)
	}
	c := cronLock{locker, "report"}
	return func(ctx context.Context, _ time.Time, work func(context.Context) error) (bool, error) {
		return c.tick(ctx, work)
	}, locker.Close
}

func TestCronByLock(t *testing.T) {
	for seed := range *cronSeeds {
		requireOnce(t, 200, cronRuns(t, 200, seed, byLock))
	}
}

// requireOnce requires that each tick from the first to the last ran once, but those that are excused.
func requireOnce(t *testing.T, ticks int, runs map[time.Time]int, excused ...time.Time) {
	t.Helper()
	require.GreaterOrEqual(t, len(runs)+len(excused), ticks)
	all := slices.SortedFunc(maps.Keys(runs), time.Time.Compare)
	for due := all[0]; !due.After(all[len(all)-1]); due = due.Add(cronPeriod) {
		if !slices.ContainsFunc(excused, due.Equal) {
			require.Equal(t, 1, runs[due], "the tick at %v", due)
		}
	}
}

func TestCronByRegister(t *testing.T) {
	for seed := range *cronSeeds {
		requireOnce(t, 200, cronRuns(t, 200, seed, byRegister))
	}
}

// Without a claim each process runs each tick: the test would notice.
func TestCronWithoutAClaimRunsTicksTwice(t *testing.T) {
	runs := cronRuns(t, 20, 1, func(rueidis.Client) (tick, func() error) {
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
	guard, err := redisguard.New(client)
	require.NoError(t, err)
	c := cron{guard, "report", time.Minute}
	ran, err := c.tick(t.Context(), time.Now(), func(ctx context.Context) error {
		_, limited := ctx.Deadline()
		require.False(t, limited)
		return nil
	})
	require.NoError(t, err)
	require.True(t, ran)
}
