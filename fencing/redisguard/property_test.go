package redisguard_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/redisguard"
	"github.com/seed74116694/fencelock/internal/test/testredis"
)

// The rule in Lua against the rule in Go, for one fence and for several at once, and the data against a variable.
func testAgreesWithRegisters(t *testing.T, client rueidis.Client) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	g, ctx := newGuard(t, client), context.Background()
	const lowest = 1_763_712_345_678_900 // of the magnitude that real tokens have
	set := redisguard.NewScript(`return redis.call('SET', KEYS[1], ARGV[1])`)

	for round := range 20 {
		key, want, data := fmt.Sprintf("k{%d}", round), map[string]fencing.Registers{}, ""
		for step := range 40 {
			var fences []fencing.Fence
			for _, i := range rng.Perm(3)[:1+rng.IntN(3)] {
				f := read(fmt.Sprint("r", i), fencing.Token(lowest+rng.IntN(30)))
				f.Mode = fencing.Mode(1 + rng.IntN(2))
				fences = append(fences, f)
			}
			op, value := rng.IntN(4), fmt.Sprint("v", step)
			check, f := fencing.Registers.Check, fences[0]
			switch {
			case op == 0:
				check = fencing.Registers.CheckDerived
			case op == 1 && f.Mode == fencing.Read:
				op = 2
			}
			if op < 3 {
				fences = fences[:1]
			}
			var expected, got error
			for _, f := range fences {
				if expected == nil {
					expected = check(want[f.Resource], f)
				}
			}
			switch op {
			case 0:
				got = g.Derive(ctx, f, key, value, 0)
			case 1:
				got = g.Set(ctx, f, key, value, 0)
			case 2:
				got = g.Claim(ctx, f, key)
			default:
				_, got = g.DoAll(ctx, fences, set, []string{key}, []string{value})
			}
			require.Equal(t, expected, got, "%d, %v against %v", op, fences, want)
			for _, f := range fences {
				if expected == nil && op > 0 {
					want[f.Resource] = want[f.Resource].Raise(f)
				}
				seen, err := g.Seen(ctx, f.Resource, key)
				require.NoError(t, err)
				require.Equal(t, want[f.Resource], seen)
			}
			if expected == nil && op != 2 {
				data = value
			}
		}
		require.Equal(t, data, stored(t, client, key))
	}
}

// stored returns the value of the key, "" where there is none.
func stored(t *testing.T, client rueidis.Client, key string) string {
	value, err := client.Do(t.Context(), client.B().Get().Key(key).Build()).ToString()
	if !rueidis.IsRedisNil(err) {
		require.NoError(t, err)
	}
	return value
}

// Two increments read and write in two steps, as holders do; a stale one is
// refused instead of overwriting what came after its read.
func TestPausedWriterLosesNoUpdate(t *testing.T) {
	server := testredis.Start(t)
	ctx := context.Background()
	paused, current := newGuard(t, server.Client(t)), newGuard(t, server.Client(t))
	require.NoError(t, current.Set(ctx, write("a", 1), "n", "10", 0))

	value, err := paused.Get(ctx, write("a", 2), "n")
	require.NoError(t, err)
	require.Equal(t, "10", value)
	value, err = current.Get(ctx, write("a", 3), "n")
	require.NoError(t, err)
	require.Equal(t, "10", value)

	require.ErrorIs(t, paused.Set(ctx, write("a", 2), "n", "11", 0), fencing.ErrStale,
		"refused although nothing has been written since: the newer holder has read")
	require.NoError(t, current.Set(ctx, write("a", 3), "n", "11", 0))
}
