package testredis_test

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testredis"
)

// TestNoReplyIsMistakenUnderRandomFaults: whatever a client is told must be the reply to its own command.
func TestNoReplyIsMistakenUnderRandomFaults(t *testing.T) {
	for seed := range testredis.Few(uint64(1), 3) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { randomFaults(t, seed) })
		})
	}
}

// echoes reports whether the server answers in time. It answers what it was asked.
func echoes(ctx context.Context, t *testing.T, client rueidis.Client, want string) bool {
	ctx, stop := context.WithTimeout(ctx, 300*time.Millisecond)
	defer stop()
	got, err := client.Do(ctx, client.B().Echo().Message(want).Build()).ToString()
	if err == nil && got != want {
		t.Errorf("asked for %q, got %q", want, got)
	}
	return err == nil
}

func randomFaults(t *testing.T, seed uint64) {
	const clients, duration = 6, 30 * time.Second
	mini := testredis.NewMini(t)
	ctx, cancel := context.WithTimeout(t.Context(), duration)
	defer cancel()

	var answered atomic.Int64
	var wg sync.WaitGroup
	links := make([]*testredis.Link, clients)
	for i := range links {
		links[i] = mini.NewLink()
		client := links[i].Client(t)
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				if echoes(ctx, t, client, strconv.Itoa(i)+":"+strconv.Itoa(n)) {
					answered.Add(1)
				}
				pause(ctx, 10*time.Millisecond)
			}
		})
	}
	wg.Go(func() {
		rng := rand.New(rand.NewPCG(seed, 1))
		for ctx.Err() == nil {
			strike(rng, mini, links[rng.IntN(clients)])
			pause(ctx, time.Duration(rng.IntN(200))*time.Millisecond)
		}
	})
	wg.Wait()
	require.Greater(t, answered.Load(), int64(clients)*100, "the faults must leave something to test")

	mini.Thaw()
	mini.Recover()
	for _, link := range links {
		link.Restore()
		link.Delay(0)
	}
	time.Sleep(10 * time.Second) // the clients' own pings find the connections that are lost
	for _, link := range links {
		client := link.Client(t)
		require.NoError(t, client.Do(t.Context(), client.B().Ping().Build()).Error())
	}
}

func strike(rng *rand.Rand, mini *testredis.Mini, link *testredis.Link) {
	dir := testredis.Direction(1 + rng.IntN(3))
	match := testredis.Named("ECHO")
	faults := []func(){
		func() { link.Cut() },
		func() { link.Refuse() },
		func() { link.Blackhole(dir) },
		func() { link.Hold(dir) },
		func() { link.DelayDir(dir, time.Duration(rng.IntN(50))*time.Millisecond) },
		func() { link.DropNextReply(match) },
		func() { link.DropNextCommand(match) },
		func() { link.MuteNextReply(match) },
		func() { link.DelayNextReply(match, 100*time.Millisecond) },
		func() { link.Duplicate(match, nil) },
		func() { link.Duplicate(nil, nil) },
		mini.Freeze,
		mini.Crash,
	}
	faults[rng.IntN(len(faults))]()
	if rng.IntN(2) == 0 {
		link.Restore()
		mini.Thaw()
		mini.Recover()
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
