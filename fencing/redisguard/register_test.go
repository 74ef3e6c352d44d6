package redisguard_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/redisguard"
	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testredis"
)

// Guards with different settings share a register: the longest life wins, whoever comes last.
func testMixedTTLs(t *testing.T, client rueidis.Client) {
	ctx := context.Background()
	const forever = time.Duration(-1)
	for i, tt := range []struct {
		ttls []time.Duration // of the guards, in turn; 0: none
		left time.Duration   // at least so much is left in the end, if it is not forever
	}{
		{[]time.Duration{0}, forever},
		{[]time.Duration{0, time.Hour}, forever},
		{[]time.Duration{0, time.Hour, 0}, forever},
		{[]time.Duration{time.Hour, 0}, forever},
		{[]time.Duration{48 * time.Hour, time.Hour}, 47 * time.Hour},
		{[]time.Duration{time.Hour, 48 * time.Hour}, 47 * time.Hour},
	} {
		for _, rising := range []bool{false, true} {
			key, token := fmt.Sprint("k", i, rising), fencing.Token(10)
			for _, ttl := range tt.ttls {
				var opts []redisguard.Option
				if ttl > 0 {
					opts = append(opts, redisguard.WithRegisterTTL(ttl))
				}
				require.NoError(t, newGuard(t, client, opts...).Claim(ctx, write("a", token), key))
				if rising {
					token++
				}
			}
			ms := expect.NoError(client.Do(ctx, client.B().Pttl().Key("fencing:{"+key+"}:a").Build()).AsInt64()).In(t)
			about := fmt.Sprintf("%v, rising=%t", tt.ttls, rising)
			if tt.left == forever {
				require.EqualValues(t, -1, ms, about)
			} else {
				require.Greater(t, time.Duration(ms)*time.Millisecond, tt.left, about)
			}
		}
	}
}

// What is in a register decides on accesses, so nothing but a token is taken for one: nan would let all pass.
func testRegistersHoldTokens(t *testing.T, client rueidis.Client) {
	g, ctx := newGuard(t, client), context.Background()
	for i, text := range []string{"", "x", "nan", "0x10", "1e300", "-1", " 1", "1.5", "9007199254740992"} {
		for _, field := range []string{"r", "w"} {
			key := fmt.Sprint("k", i, field)
			hset := client.B().Hset().Key("fencing:{"+key+"}:a").FieldValue().FieldValue(field, text).Build()
			require.NoError(t, client.Do(ctx, hset).Error())
			require.ErrorContains(t, g.Set(ctx, write("a", 9), key, "v", 0), "no token", "%q", text)
			_, err := g.Seen(ctx, "a", key)
			require.ErrorIs(t, err, fencing.ErrMalformed, "%q", text)
			require.Zero(t, expect.NoError(client.Do(ctx, client.B().Exists().Key(key).Build()).AsInt64()).In(t))
		}
	}
}

// The register rises although the access failed, because that may have written before it failed.
func testRegisterRisesWithAFailingScript(t *testing.T, client rueidis.Client) {
	g, ctx := newGuard(t, client), context.Background()
	for i, body := range []string{
		`redis.call('SET', KEYS[1], 'half') error('raised')`,
		`redis.call('SET', KEYS[1], 'half') redis.call('LPOP')`,
		`redis.call('SET', KEYS[1], 'half') return redis.error_reply('MINE it went wrong')`,
	} {
		key := fmt.Sprint("k", i)
		require.Error(t, second(g.Do(ctx, write("a", 9), redisguard.NewScript(body), []string{key}, nil)))
		require.ErrorIs(t, g.Set(ctx, write("a", 8), key, "late", 0), fencing.ErrStale, body)
		require.Equal(t, "half", expect.NoError(g.Get(ctx, write("a", 9), key)).In(t))
	}
}

// The register of the database in which the fence was checked rises, wherever the access has gone.
func testAccessOfAnotherDatabase(t *testing.T, client rueidis.Client) {
	g, ctx := newGuard(t, client), context.Background()
	script := redisguard.NewScript(`redis.call('SELECT', 1) return redis.call('SET', KEYS[1], 'there')`)
	_, _ = g.Do(ctx, write("a", 9), script, []string{"k"}, nil) // a Cluster has one database, and refuses
	require.ErrorIs(t, second(g.Do(ctx, write("a", 8), script, []string{"k"}, nil)), fencing.ErrStale)
	require.ErrorIs(t, g.Set(ctx, write("a", 8), "k", "late", 0), fencing.ErrStale)
}

// A resource without a register is a new one only where the server does not evict registers.
func TestPoliciesThatEvictRegisters(t *testing.T) {
	ctx := context.Background()
	server := testredis.Start(t)
	client := server.Client(t)
	for _, tt := range []struct {
		policy    string
		opts      []redisguard.Option
		evictable bool
	}{
		{"noeviction", nil, false},
		{"noeviction", []redisguard.Option{redisguard.WithRegisterTTL(time.Hour)}, false},
		{"volatile-lru", nil, false},
		{"volatile-lru", []redisguard.Option{redisguard.WithRegisterTTL(time.Hour)}, true},
		{"volatile-ttl", []redisguard.Option{redisguard.WithRegisterTTL(time.Hour)}, true},
		{"allkeys-lru", nil, true},
		{"allkeys-random", []redisguard.Option{redisguard.WithRegisterTTL(time.Hour)}, true},
	} {
		t.Run(fmt.Sprintf("%s/ttl=%t", tt.policy, tt.opts != nil), func(t *testing.T) {
			command(t, server, "FLUSHALL")
			g := newGuard(t, client, tt.opts...)
			command(t, server, "CONFIG", "SET", "maxmemory-policy", "noeviction")
			require.NoError(t, g.Claim(ctx, write("known", 10), "k"))
			command(t, server, "CONFIG", "SET", "maxmemory-policy", tt.policy)
			require.NoError(t, g.Set(ctx, write("known", 10), "k", "v", 0))
			require.ErrorIs(t, g.Set(ctx, write("known", 9), "k", "v", 0), fencing.ErrStale)

			_, readErr := g.Get(ctx, read("new 1", 10), "k1")
			both := []fencing.Fence{write("known", 10), read("new 4", 10)} // the first is not the one
			errs := []error{
				g.Set(ctx, write("new 2", 10), "k2", "v", 0), g.Derive(ctx, read("new 3", 10), "k3", "v", 0),
				second(g.DoAll(ctx, both, counting, []string{"k"}, nil)),
			}
			if !tt.evictable {
				require.True(t, rueidis.IsRedisNil(readErr), "%v", readErr)
				require.NoError(t, errors.Join(errs[:2]...))
				return
			}
			for _, err := range append(errs, readErr) {
				require.ErrorIs(t, err, redisguard.ErrEvicts)
				require.ErrorContains(t, err, tt.policy)
				ofTTL := strings.HasPrefix(tt.policy, "volatile-") // without the option this policy works
				require.Equal(t, ofTTL, strings.Contains(err.Error(), "WithRegisterTTL"), "%v", err)
				require.ErrorContains(t, err, `"new `)
			}
			require.EqualValues(t, 0, command(t, server, "EXISTS", "k2", "k3", "fencing:{k2}:new 2"), "nothing was done")
		})
	}
}

// Registers are lost for real here, and no stale write passes for that.
func TestEvictedRegistersLetNothingPass(t *testing.T) {
	const resources, fill = 100, 3000
	ctx := context.Background()
	server := testredis.Start(t)
	client := server.Client(t)
	g := newGuard(t, client, redisguard.WithRegisterTTL(time.Hour))
	name := func(i int) string { return fmt.Sprint("k", i) }
	for i := range resources {
		require.NoError(t, g.Set(ctx, write(name(i), 10), name(i), "new", 0))
	}
	command(t, server, "CONFIG", "SET", "maxmemory-policy", "volatile-ttl") // those that end first
	command(t, server, "CONFIG", "SET", "maxmemory", "3mb")
	for i := range fill {
		command(t, server, "SET", fmt.Sprint("cache", i), strings.Repeat("c", 1000), "EX", "86400")
	}
	lost := 0
	for i := range resources {
		seen := expect.NoError(g.Seen(ctx, name(i), name(i))).In(t)
		if seen == (fencing.Registers{}) {
			lost++
		}
		err := g.Set(ctx, write(name(i), 5), name(i), "stale", 0)
		require.Error(t, err)
		if seen == (fencing.Registers{}) {
			require.ErrorIs(t, err, redisguard.ErrEvicts)
		}
	}
	require.Positive(t, lost, "the server evicted no register: the test shows nothing")
	t.Logf("%d of %d registers were evicted", lost, resources)
}

// A replica may lag behind, so it must not even let a reader with a known token pass.
func TestReplicaDoesNoAccess(t *testing.T) {
	ctx := context.Background()
	master, replica := testredis.Start(t), testredis.Start(t)
	require.NoError(t, newGuard(t, master.Client(t)).Set(ctx, write("a", 10), "k", "v", 0))
	replica.ReplicaOf(master)
	for _, opts := range [][]redisguard.Option{nil, {redisguard.WithRegisterTTL(time.Hour)}} {
		g := newGuard(t, replica.Client(t), opts...)
		for _, f := range []fencing.Fence{write("a", 10), read("a", 10), read("a", 11)} {
			_, err := g.Get(ctx, f, "k")
			require.ErrorContains(t, err, "READONLY", "%v", f)
		}
	}
}

// A full server holds back what needs memory, and nothing else: the next holder still reads, claims and deletes.
func TestFullServer(t *testing.T) {
	for _, opts := range [][]redisguard.Option{nil, {redisguard.WithRegisterTTL(time.Hour)}} {
		t.Run(fmt.Sprintf("ttl=%t", opts != nil), func(t *testing.T) {
			server := testredis.Start(t)
			g, ctx := newGuard(t, server.Client(t), opts...), context.Background()
			large := strings.Repeat("x", 1<<20)
			for _, key := range []string{"read", "claimed", "deleted", "unlinked", "kept"} {
				require.NoError(t, g.Set(ctx, write("a", 10), key, large, 0))
			}
			command(t, server, "CONFIG", "SET", "maxmemory", "1mb")

			for _, token := range []fencing.Token{10, 11} { // the same holder, and the next
				full := "OOM"
				require.ErrorContains(t, g.Set(ctx, write("a", token), "kept", "y", 0), full)
				require.ErrorContains(t, g.HSet(ctx, write("a", token), "hash", map[string]string{"f": "v"}), full)
				require.ErrorContains(t, g.Derive(ctx, read("a", token), "derived", "y", 0), full)
				set := redisguard.NewScript(`return redis.call('SET', KEYS[1], 'y')`)
				require.ErrorContains(t, second(g.Do(ctx, write("a", token), set, []string{"script"}, nil)), full)
			}
			require.Equal(t, large, expect.NoError(g.Get(ctx, write("a", 11), "kept")).In(t), "nothing was stored")
			require.EqualValues(t, 0, command(t, server, "EXISTS", "hash", "derived", "script"))

			require.Equal(t, large, expect.NoError(g.Get(ctx, read("a", 11), "read")).In(t))
			require.NoError(t, g.Claim(ctx, write("a", 11), "claimed"))
			unlink := redisguard.NewScript(`return redis.call('UNLINK', KEYS[1])`)
			require.ErrorContains(t, second(g.Do(ctx, write("a", 11), unlink, []string{"unlinked"}, nil)), "OOM")
			require.NoError(t, g.Claim(ctx, write("a", 11), "unlinked"), "no register has to rise after that")
			require.NoError(t, second(g.Do(ctx, write("a", 11), unlink, []string{"unlinked"}, nil)))
			require.NoError(t, g.Del(ctx, write("a", 11), "deleted"))
			require.EqualValues(t, 0, command(t, server, "EXISTS", "unlinked", "deleted"))
			for _, key := range []string{"read", "claimed", "deleted", "unlinked"} {
				require.ErrorIs(t, g.Claim(ctx, write("a", 10), key), fencing.ErrStale, key)
			}
		})
	}
}

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
				require.Equal(t, want[f.Resource], expect.NoError(g.Seen(ctx, f.Resource, key)).In(t))
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

// Two increments read and write in two steps; a stale one is refused instead of overwriting what came after its read.
func TestPausedWriterLosesNoUpdate(t *testing.T) {
	server := testredis.Start(t)
	ctx := context.Background()
	paused, current := newGuard(t, server.Client(t)), newGuard(t, server.Client(t))
	require.NoError(t, current.Set(ctx, write("a", 1), "n", "10", 0))

	require.Equal(t, "10", expect.NoError(paused.Get(ctx, write("a", 2), "n")).In(t))
	require.Equal(t, "10", expect.NoError(current.Get(ctx, write("a", 3), "n")).In(t))

	require.ErrorIs(t, paused.Set(ctx, write("a", 2), "n", "11", 0), fencing.ErrStale,
		"refused although nothing has been written since: the newer holder has read")
	require.NoError(t, current.Set(ctx, write("a", 3), "n", "11", 0))
}
