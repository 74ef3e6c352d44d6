package scripts_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const maxExact = 1<<53 - 1

// grant acquires for a moment, and returns the token and the server's time.
func (e *env) grant(r request) (token, us int64) {
	e.t.Helper()
	reply := e.run(acquire(r))
	require.EqualValues(e.t, 1, reply[0])
	e.run(release(r.hold, 0))
	return reply[1].(int64), reply[3].(int64)
}

func TestTokensAboveTheClockCountByOne(t *testing.T) {
	everywhere(t, func(e *env) {
		// Above 1e14 Lua's own conversion rounds: 123456789012345 would be 1.2345678901234e+14.
		for _, start := range []int64{8_000_000_000_000_001, 8_765_432_109_876_543, maxExact - 100} {
			e.flushAll()
			e.setFields(lockKey, "t", start)
			for i := range int64(20) {
				r := []func(string) request{reader, writer}[i%2](fmt.Sprint(100 + i))
				token, _ := e.grant(r)
				require.Equal(e.t, start+1+i, token)
				require.Equal(e.t, fmt.Sprint(token), e.field(lockKey, "t"))
			}
			held := e.run(acquire(writer("77").by("a")))[1].(int64)
			require.Equal(e.t, start+21, held)
			require.Equal(e.t, held, e.run(acquire(writer("77").by("a")))[1], "asked again")
			require.EqualValues(e.t, 1, e.run(renew("77", ttl, held))[1])
			require.Equal(e.t, held, e.run(join(writer("78").by("a")))[1])
			require.Equal(e.t, held, e.run(inspect())[2])
			e.run(acquire(reader("79")))
			e.run(release("77", 0))
			e.run(release("78", 0))
			require.Equal(e.t, held+1, e.run(refresh("79"))[4])
		}
	})
}

// The message of a hand-off carries the token and the time as text.
func TestHandOffMessageIsExact(t *testing.T) {
	everywhere(t, func(e *env) {
		e.setFields(lockKey, "t", "8765432109876543")
		e.run(acquire(writer("01")))
		e.run(acquire(writer("02").listening("p" + channel)))
		heard := e.subscribe(channel)
		reply := e.run(release("01", 0))
		message := <-heard
		require.Equal(e.t, fmt.Sprint(ulid("02"), " 8765432109876545 ", reply[1], " ", claim), unnamed(message))
		require.Regexp(e.t, process, message)
	})
}

// The messages of one process name it alike, and those of two processes differently.
func TestHandOffMessageNamesTheProcess(t *testing.T) {
	named, servers := make(map[string]string), 0
	onServers(t, func(e *env) {
		servers++
		heard := e.subscribe(channel)
		for range 3 {
			e.run(acquire(writer("01")))
			e.run(acquire(writer("02").listening("p" + channel)))
			e.run(release("01", 0))
			e.run(release("02", 0))
			name := process.FindString(<-heard)
			other, known := named[name]
			require.True(e.t, !known || other == e.t.Name(), "%s and %s", other, e.t.Name())
			named[name] = e.t.Name()
		}
	})
	require.Len(t, named, servers)
}

// The hash outlives the lock by an hour, or by the longest TTL in it. A shorter one does not shorten it.
func TestTokensOutliveTheLock(t *testing.T) {
	const hour = 3_600_000
	everywhere(t, func(e *env) {
		left := func(key string) int64 {
			ms, err := e.do("PTTL", key).AsInt64()
			require.NoError(e.t, err)
			return ms
		}
		for _, mode := range []func(string) request{reader, writer} {
			e.flushAll()
			e.run(acquire(mode("01")))
			require.InDelta(e.t, hour, left(lockKey), 10_000)
			e.run(release("01", 0))
			require.InDelta(e.t, hour, left(lockKey), 10_000)
			held := e.run(acquire(mode("02").lasting(3 * hour)))
			require.InDelta(e.t, 3*hour, left(lockKey), 10_000)
			e.run(acquire(reader("03")))
			require.InDelta(e.t, 3*hour, left(lockKey), 10_000, "a shorter one")
			e.run(refresh("03"))
			e.run(renew("02", hour, held[1]))
			require.InDelta(e.t, 3*hour, left(lockKey), 10_000, "a shorter renewal")
			e.run(renew("02", 4*hour, held[1]))
			require.InDelta(e.t, 4*hour, left(lockKey), 10_000)
		}
		require.Negative(e.t, left(lockKeys("n")[1]), "only writers are there")
		require.InDelta(e.t, hour, left(lockKeys("n")[2]), 10_000, "of waiters")
	})
}

// A key lives as long as the longest of its holds, whatever comes after it.
func TestKeysLiveAsLongAsTheirLongestHold(t *testing.T) {
	const long = 7_200_000
	everywhere(t, func(e *env) {
		for _, later := range []request{reader("02"), reader("02").by("a")} {
			e.flushAll()
			e.run(acquire(reader("01").lasting(long)))
			e.run(acquire(later))
			for _, key := range lockKeys("n")[:2] {
				left, err := e.do("PTTL", key).AsInt64()
				require.NoError(e.t, err)
				require.InDelta(e.t, long, left, 10_000)
			}
		}
	})
}

// A renewal that comes after the hold has expired changes nothing.
func TestARenewalRevivesNothing(t *testing.T) {
	everywhere(t, func(e *env) {
		for _, held := range []request{writer("01"), reader("01"), writer("01").by("a")} {
			e.flushAll()
			token := e.run(acquire(held))[1]
			e.pass(2 * ttl * time.Millisecond)
			require.EqualValues(e.t, 0, e.run(renew("01", ttl, token))[1])
			require.EqualValues(e.t, 1, e.run(acquire(writer("02")))[0])
		}
	})
}

// A hash that is emptied and made anew gets an expiry as any.
func TestEveryKeyExpires(t *testing.T) {
	everywhere(t, func(e *env) {
		for _, next := range []call{acquire(writer("02")), acquire(reader("02")), acquire(writer("02").by("a"))} {
			e.flushAll()
			e.run(release("01", ttl)) // a tombstone is all that there is
			e.pass(2 * ttl * time.Millisecond)
			require.EqualValues(e.t, 1, e.run(next)[0])
			for key, content := range e.dump() {
				require.NotEqual(e.t, "left -1", content[len(content)-1], key)
			}
		}
	})
}

// An operator runs the file itself, while the application is down.
func TestInspectRunsFromRedisCLI(t *testing.T) {
	cli, err := exec.LookPath("redis-cli")
	if err != nil {
		const missing = "no redis-cli on PATH: install the Debian package redis-tools"
		if os.Getenv("CI") == "true" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	onServers(t, func(e *env) {
		ask := func(r request) []any {
			c := acquire(r)
			c.keys = lockKeys("or ders")
			return e.run(c)
		}
		ask(reader("01"))
		token := ask(reader("02"))[1]
		ask(writer("03"))
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		out, err := exec.CommandContext(ctx, cli, "-p", strconv.Itoa(e.server.Port()),
			"--eval", "inspect.lua", "fencelock:{or ders}").CombinedOutput()
		require.NoError(t, err, string(out))
		for _, shown := range []string{"\nr\n", fmt.Sprint(token), ulid("01"), ulid("02"), ulid("03"), "meta of it"} {
			require.Contains(t, string(out), shown)
		}
	})
}

// A hold that has joined a writer is raised without the writer's token.
func TestARaiseOfAJoinedHoldKeepsTheWritersToken(t *testing.T) {
	everywhere(t, func(e *env) {
		e.newMarker()
		token := e.run(votes.of(acquireByID(writer("01").by("a"))))[1].(int64)
		require.EqualValues(e.t, 1, e.run(votes.of(join(reader("02").by("a"))))[0])
		for range 2 {
			require.EqualValues(e.t, token+100, e.run(votes.of(raise("02", token+100)))[1])
		}
		require.EqualValues(e.t, 1, e.run(votes.of(renew("01", ttl, token)))[1])
		require.EqualValues(e.t, 1, e.run(votes.of(renew("02", ttl, token+100)))[1])
		require.EqualValues(e.t, 0, e.run(votes.of(raise("01", token+200)))[0], "no client waits for it")
	})
}
