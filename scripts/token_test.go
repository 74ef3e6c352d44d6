package scripts_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
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
			c.keys = lockKeys("or ders")[:1]
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

// heard returns what a channel has heard so far, once it hears what is published now.
func (e *env) heard(messages <-chan string) (all []string) {
	e.t.Helper()
	require.NoError(e.t, e.do("PUBLISH", channel, "end").Error())
	for m := range messages {
		if m == "end" {
			return all
		}
		all = append(all, unnamed(m))
	}
	return all
}

// unnamed takes from the message of a hand-off what names the server's process, and stays the same while that lives.
func unnamed(message string) string { return process.ReplaceAllString(message, "$1") }

var process = regexp.MustCompile(` [0-9a-f]{12}((?: \d+ \d+)?)$`)

// A hand-off whose message nobody hears goes to the next in the same script. The dead one keeps its place until its
// lease ends; if it lives after all, it is granted at its next refresh, or in its turn whoever hears of it.
func TestDeadWaitersArePassedOver(t *testing.T) {
	everywhere(t, func(e *env) {
		nobody := "pfencelock:c:nobody"
		e.run(acquire(writer("01")))
		for i := range 10 {
			e.run(acquire(writer(fmt.Sprint("1", i)).listening(nobody)))
		}
		e.run(acquire(writer("20").listening(deaf)))
		messages := e.subscribe(channel)
		last := e.field(lockKey, "t")
		released := e.run(release("01", 0))
		require.Equal(e.t, []any{int64(1), int64(0)}, []any{released[0], released[2]})
		granted := e.run(refresh("20"))
		require.EqualValues(e.t, 1, granted[3])
		require.Equal(e.t, []string{fmt.Sprint(ulid("20"), " ", granted[4], " ", released[1], " ", claim)}, e.heard(messages))
		if e.mini != nil {
			require.Equal(e.t, last, fmt.Sprint(granted[4].(int64)-1), "nothing is minted for the dead")
		}
		require.Equal(e.t, "10", e.members("aside"))

		e.run(acquire(writer("30"))) // behind those who come back
		require.EqualValues(e.t, 0, e.run(refresh("15"))[3])
		require.EqualValues(e.t, 0, e.run(acquire(writer("12").listening(nobody)))[0])
		e.run(release("20", 0))
		require.EqualValues(e.t, 1, e.run(refresh("12"))[3], "its place is before the other's")
		e.run(release("12", 0))
		require.EqualValues(e.t, 1, e.run(refresh("15"))[3], "deaf, but alive")
		e.pass(claim * time.Millisecond)
		e.run(refresh())
		require.EqualValues(e.t, 2, e.run(refresh("14"))[3], "its lease has ended")
		require.Empty(e.t, e.members("aside"))
	})
}

func askMany(e *env, n int, mode func(hold string) request) {
	for i := range n {
		e.run(acquire(mode(fmt.Sprint(1000 + i))))
	}
}

// What one call does is bounded; it says that there is more, and a refresh without holds goes on.
func TestCallsAreBounded(t *testing.T) {
	goOn := func(e *env) (calls int) {
		for more := int64(1); more == 1; calls++ {
			more = e.run(refresh())[2].(int64)
		}
		return calls
	}
	everywhere(t, func(e *env) {
		e.run(acquire(writer("01")))
		askMany(e, 200, reader)
		require.EqualValues(e.t, 1, e.run(release("01", 0))[2])
		require.Equal(e.t, "64", e.members("holds"), "grants")
		require.EqualValues(e.t, 1, e.run(tryAcquire(writer("02")))[2], "wake")
		require.Equal(e.t, "128", e.members("holds"))
		require.Equal(e.t, 2, goOn(e))
		require.Equal(e.t, "200", e.members("holds"))

		e.pass(ttl * time.Millisecond)
		refused := e.run(acquire(writer("03")))
		require.Equal(e.t, []any{int64(0), int64(0), int64(1)}, refused[:3], "expired holds are left")
		require.Equal(e.t, "136", e.members("holds"), "purged")
		require.Equal(e.t, 3, goOn(e))
		require.Equal(e.t, ulid("03"), e.field(lockKey, "w")[:26])

		askMany(e, 200, func(hold string) request { return reader(hold).waiting(1) })
		e.pass(time.Millisecond)
		require.EqualValues(e.t, 1, e.run(release("03", 0))[2])
		require.Equal(e.t, "136", e.members("queue"), "dropped")
		require.Equal(e.t, 3, goOn(e))

		e.run(acquire(writer("04")))
		askMany(e, 200, func(hold string) request { return reader(hold).listening(deaf) })
		require.EqualValues(e.t, 1, e.run(release("04", 0))[2])
		require.Equal(e.t, "64", e.members("aside"), "passed over")
		require.Equal(e.t, 3, goOn(e))
		require.Equal(e.t, "200", e.members("aside"))
		e.pass(claim * time.Millisecond)
		require.Equal(e.t, 4, goOn(e))
		e.onlyTokensStay()
	})
}

// A hold that has expired is granted anew, also where a call that purges 64 leaves it.
func TestAnExpiredHoldBehindOthersIsGrantedAnew(t *testing.T) {
	everywhere(t, func(e *env) {
		var token int64
		for i := range 70 {
			token = e.run(acquire(reader(fmt.Sprint(1000 + i))))[1].(int64)
			e.pass(time.Millisecond) // they expire in this order
		}
		e.pass(ttl * time.Millisecond)
		reply := e.run(acquire(reader("1069")))
		require.EqualValues(e.t, 1, reply[0])
		require.Greater(e.t, reply[1], token)
		require.Equal(e.t, "6", e.members("holds"), "the others that one call has left, and the new one")
	})
}
