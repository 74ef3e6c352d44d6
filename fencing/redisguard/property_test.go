package redisguard_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/test/testredis"
)

// The rule in Lua against the rule in Go, and the data against a variable.
func testAgreesWithRegisters(t *testing.T, client rueidis.Client) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	g, ctx := newGuard(t, client), context.Background()
	const lowest = 1_763_712_345_678_900 // of the magnitude that real tokens have

	for round := range 20 {
		key, want, data := fmt.Sprint("k", round), fencing.Registers{}, ""
		for step := range 40 {
			f := read("a", fencing.Token(lowest+rng.IntN(30)))
			if rng.IntN(2) == 0 {
				f.Mode = fencing.Write
			}
			value := fmt.Sprint("v", step)
			expected := want.Check(f)
			var got error
			switch op := rng.IntN(3); {
			case op == 0:
				expected = want.CheckDerived(f)
				got = g.Derive(ctx, f, key, value, 0)
				if expected == nil {
					data = value
				}
			case op == 1 && f.Mode == fencing.Write:
				got = g.Set(ctx, f, key, value, 0)
				if expected == nil {
					want, data = want.Raise(f), value
				}
			default:
				got = g.Claim(ctx, f, key)
				if expected == nil {
					want = want.Raise(f)
				}
			}
			require.Equal(t, expected, got, "%v against %+v", f, want)
			seen, err := g.Seen(ctx, "a", key)
			require.NoError(t, err)
			require.Equal(t, want, seen)
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

// Writers with tokens in no order, each from its own client: what stays is the
// newest, whereas without the guard it is the last to come.
func TestConcurrentWritersLeaveTheNewest(t *testing.T) {
	server := testredis.Start(t)
	const writers, writes = 8, 200
	var workers sync.WaitGroup
	for i := range writers {
		g := newGuard(t, server.Client(t))
		rng := rand.New(rand.NewPCG(uint64(i), 0))
		workers.Go(func() {
			for _, n := range rng.Perm(writes) {
				token := fencing.Token(1 + n*writers + i)
				err := g.Set(context.Background(), write("a", token), "k", token.String(), 0)
				if err != nil && !errors.Is(err, fencing.ErrStale) {
					t.Error(err)
				}
			}
		})
	}
	workers.Wait()
	value, err := newGuard(t, server.Client(t)).Get(context.Background(), write("a", writers*writes), "k")
	require.NoError(t, err)
	require.Equal(t, fmt.Sprint(writers*writes), value)
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
