package redisguard_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/redisguard"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// counting counts its own runs in its first key.
var counting = redisguard.NewScript(`return redis.call('INCR', KEYS[1]) .. ' ' .. #KEYS .. ' ' .. #ARGV`)

func testDoAll(t *testing.T, client rueidis.Client) {
	g, ctx := newGuard(t, client), context.Background()
	keys, args := []string{"n{k}", "other{k}"}, []string{"x"}
	require.NoError(t, g.Claim(ctx, write("b", 9), "{k}"))
	fences := []fencing.Fence{write("c", 3), read("a", 5), write("b", 9)}
	reply, err := g.DoAll(ctx, fences, counting, keys, args)
	require.NoError(t, err)
	text, err := reply.ToString()
	require.NoError(t, err)
	require.Equal(t, "1 2 1", text, "the script sees its own keys and arguments")

	want := map[string]fencing.Registers{"a": {MaxRead: 5}, "b": {MaxWrite: 9}, "c": {MaxWrite: 3}}
	requireSeen(t, g, want)
	for _, fences := range [][]fencing.Fence{
		{write("a", 6), write("b", 8)}, {write("b", 8), write("a", 6)}, {read("a", 6), read("new", 1), read("b", 8)},
	} {
		_, err := g.DoAll(ctx, fences, counting, keys, args)
		require.Equal(t, &fencing.StaleError{Resource: "b", Got: 8, Seen: 9}, err)
	}
	requireSeen(t, g, want)
	require.Equal(t, "1", stored(t, client, "n{k}"))

	failing := redisguard.NewScript(`return redis.error_reply('MINE it went wrong')`)
	_, err = g.DoAll(ctx, []fencing.Fence{write("a", 7), read("c", 8)}, failing, keys, nil)
	require.ErrorContains(t, err, "MINE")
	requireSeen(t, g, map[string]fencing.Registers{"a": {MaxRead: 5, MaxWrite: 7}, "c": {MaxRead: 8, MaxWrite: 3}})
}

func requireSeen(t *testing.T, g *redisguard.Guard, want map[string]fencing.Registers) {
	t.Helper()
	for resource, registers := range want {
		seen, err := g.Seen(t.Context(), resource, "{k}")
		require.NoError(t, err)
		require.Equal(t, registers, seen, resource)
	}
}

// The fences of a call that reads one lock and writes another: a newer write of either refuses both.
func testDoAllUnderLocksOfBothModes(t *testing.T, client rueidis.Client) {
	g, keys := newGuard(t, client), []string{"n{k}"}
	locker, err := rwlock.New(client)
	require.NoError(t, err)
	defer func() { require.NoError(t, locker.Close()) }()
	wants := append(rwlock.Writes("account"), rwlock.Reads("rate")...)
	require.NoError(t, locker.DoAll(context.Background(), wants, func(ctx context.Context) error {
		fences := slices.Collect(fencing.All(ctx))
		require.NoError(t, second(g.DoAll(ctx, fences, counting, keys, nil)))
		account, err := fencing.Require(ctx, "account")
		require.NoError(t, err)
		rate, err := fencing.Require(ctx, "rate")
		require.NoError(t, err)
		seen := map[string]fencing.Registers{"account": {MaxWrite: account.Token}, "rate": {MaxRead: rate.Token}}
		requireSeen(t, g, seen)

		require.NoError(t, g.Claim(ctx, write("rate", rate.Token+1), "{k}")) // as of the next holder, after a pause
		stale := &fencing.StaleError{Resource: "rate", Got: rate.Token, Seen: rate.Token + 1}
		require.Equal(t, stale, second(g.DoAll(ctx, fences, counting, keys, nil)))
		return nil
	}))
	require.Equal(t, "1", stored(t, client, keys[0]))
}

func testDoAllOfManyFences(t *testing.T, client rueidis.Client) {
	g, ctx := newGuard(t, client, redisguard.WithRegisterTTL(time.Hour)), context.Background()
	var fences []fencing.Fence
	for i := range 3000 {
		fences = append(fences, write(fmt.Sprint("r", i), fencing.Token(i+1)))
	}
	require.NoError(t, second(g.DoAll(ctx, fences, counting, []string{"{k}"}, nil)))
	fences[2999].Token--
	require.Equal(t, &fencing.StaleError{Resource: "r2999", Got: 2999, Seen: 3000},
		second(g.DoAll(ctx, fences, counting, []string{"{k}"}, nil)))
	ms, err := client.Do(ctx, client.B().Pttl().Key("fencing:{k}:r2999").Build()).AsInt64()
	require.NoError(t, err)
	require.Positive(t, ms)
}

// The rule for several fences at once against the rule in Go.
func testDoAllAgreesWithRegisters(t *testing.T, client rueidis.Client) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	g, ctx := newGuard(t, client), context.Background()
	want, runs := map[string]fencing.Registers{}, 0
	for range 300 {
		var fences []fencing.Fence
		for _, i := range rng.Perm(5)[:1+rng.IntN(4)] {
			f := read(fmt.Sprint("r", i), fencing.Token(1+rng.IntN(30)))
			if rng.IntN(2) == 0 {
				f.Mode = fencing.Write
			}
			fences = append(fences, f)
		}
		var expected error
		for _, f := range fences {
			if expected == nil {
				expected = want[f.Resource].Check(f)
			}
		}
		_, err := g.DoAll(ctx, fences, counting, []string{"n{k}"}, nil)
		require.Equal(t, expected, err, "%v against %v", fences, want)
		if expected == nil {
			runs++
			for _, f := range fences {
				want[f.Resource] = want[f.Resource].Raise(f)
			}
		}
		requireSeen(t, g, want)
	}
	require.Equal(t, fmt.Sprint(runs), stored(t, client, "n{k}"))
}

func TestFencesThatAreRefusedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := testredis.NewMini(t)
		g, ctx := newGuard(t, mini.Client(t)), context.Background()
		mini.ResetCalls()
		a, b := write("a", 1), read("b", 1)
		for name, c := range map[string]struct {
			fences []fencing.Fence
			keys   []string
			want   error
			text   string
		}{
			"nil":               {nil, []string{"k"}, fencing.ErrMalformed, "at least one"},
			"twice":             {[]fencing.Fence{a, b, a}, []string{"k"}, fencing.ErrMalformed, `"a"`},
			"in both modes":     {[]fencing.Fence{b, write("b", 1)}, []string{"k"}, fencing.ErrMalformed, `"b"`},
			"no token":          {[]fencing.Fence{a, read("c", 0)}, []string{"k"}, fencing.ErrMissing, `"c"`},
			"no mode":           {[]fencing.Fence{a, {Resource: "c", Token: 1}}, []string{"k"}, fencing.ErrMalformed, "mode"},
			"keys of two slots": {[]fencing.Fence{a, b}, []string{"n{a}", "n{b}"}, fencing.ErrMalformed, `"b"`},
			"no keys":           {[]fencing.Fence{a, b}, nil, fencing.ErrMalformed, "at least one"},
		} {
			err := second(g.DoAll(ctx, c.fences, counting, c.keys, nil))
			require.ErrorIs(t, err, c.want, name)
			require.ErrorContains(t, err, c.text, name)
		}
		require.Error(t, second(g.DoAll(ctx, []fencing.Fence{a, b}, nil, []string{"k"}, nil)))
		zero := new(redisguard.Guard)
		require.ErrorContains(t, second(zero.DoAll(ctx, []fencing.Fence{a, b}, counting, []string{"k"}, nil)), "New")
		require.Empty(t, mini.AllCalls())
	})
}

// The register that may have been evicted is not that of the first fence.
func TestEvictedRegisterAmongSeveral(t *testing.T) {
	server := testredis.Start(t)
	g, ctx := newGuard(t, server.Client(t)), context.Background()
	require.NoError(t, g.Claim(ctx, write("known", 10), "{k}"))
	command(t, server, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	err := second(g.DoAll(ctx, []fencing.Fence{write("known", 10), read("new", 10)}, counting, []string{"n{k}"}, nil))
	require.ErrorIs(t, err, redisguard.ErrEvicts)
	require.ErrorContains(t, err, `"new" has none`)
	require.EqualValues(t, 0, command(t, server, "EXISTS", "n{k}"))
}
