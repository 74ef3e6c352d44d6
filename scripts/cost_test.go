package scripts_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/scripts"
)

// commands returns how many commands the scripts run for these calls. The server has to know them.
func (e *env) commands(calls ...call) int {
	e.t.Helper()
	return e.counted("", calls)
}

// besideHours is commands without PEXPIRE, which gives the key its hour, once in a hundred seconds of the clock.
func (e *env) besideHours(calls ...call) int {
	e.t.Helper()
	return e.counted("pexpire", calls)
}

func (e *env) counted(except string, calls []call) int {
	e.t.Helper()
	e.server.ResetStats()
	for _, c := range calls {
		e.run(c)
	}
	sum := 0
	for name, stat := range e.server.Stats() {
		if name != "evalsha" && name != except {
			sum += stat.Calls
		}
	}
	return sum
}

// loadAll lets the server know every script, so that none is sent whole while commands are counted.
func (e *env) loadAll() {
	e.t.Helper()
	for _, source := range scripts.All() {
		require.NoError(e.t, e.do("SCRIPT", "LOAD", source).Error())
	}
}

func many(n int, with func(hold string) call) []call {
	calls := make([]call, n)
	for i := range calls {
		calls[i] = with(fmt.Sprint(1_000_000 + i))
	}
	return calls
}

// The cost that the headers tell, in commands: what goes up here is noticed, what goes down is to be told there.
func TestCostInCommands(t *testing.T) {
	onServers(t, func(e *env) {
		e.loadAll()
		require.Equal(e.t, 4, e.commands(acquire(writer("01"))), "the first hold of a lock gives the key its hour")
		require.Equal(e.t, 2, e.commands(release("01", 0)))
		for range 2 {
			require.Equal(e.t, 3, e.besideHours(acquire(writer("01"))))
			require.Equal(e.t, 2, e.commands(release("01", 0)))
			require.Equal(e.t, 4, e.besideHours(acquire(reader("01"))))
			require.Equal(e.t, 4, e.commands(release("01", 0)))
			named := e.commands(acquire(writer("01").by("a"))) + e.commands(release("01", 0))
			require.LessOrEqual(e.t, named, 8, "a named owner")
		}
		e.run(acquire(writer("01")))
		require.Equal(e.t, 7, e.commands(endHold("01", 0, ttl, ttl)), "a writer with a minimum")
		e.run(release("01", 0))
		e.run(acquire(reader("01")))
		require.Equal(e.t, 12, e.commands(endHold("01", 0, ttl, ttl)), "a reader with a minimum")
		e.run(release("01", 0))
		e.run(acquire(reader("01")))
		require.LessOrEqual(e.t, e.commands(acquire(reader("02"))), 7, "beside another reader")
		require.Equal(e.t, 5, e.commands(release("02", 0)))
		e.run(release("01", 0))

		e.run(acquire(writer("01").lasting(500)))
		e.pass(time.Second)
		require.Equal(e.t, 3, e.besideHours(acquire(writer("02"))), "an expired hold in the way")
		e.run(release("02", 0))

		token := e.run(acquire(writer("01")))[1]
		require.Equal(e.t, 3, e.commands(tryAcquire(writer("02"))), "refused")
		require.Equal(e.t, 4, e.commands(renew("01", ttl, token)))
		enqueue := e.commands(acquire(writer("02")))
		handOff := e.commands(release("01", 0))
		require.LessOrEqual(e.t, enqueue+handOff, 14, "%d + %d", enqueue, handOff)
		for _, hold := range []string{"03", "04", "05"} {
			e.run(acquire(writer(hold)))
		}
		enqueue = e.commands(acquire(writer("06")))
		handOff = e.commands(release("02", 0))
		require.LessOrEqual(e.t, enqueue+handOff, 14, "with others in the queue: %d + %d", enqueue, handOff)

		require.Equal(e.t, 7, e.commands(group(nil, []pair{{"a", "01"}, {"b", "01"}}, "")))
		require.Equal(e.t, 7, e.besideHours(group([]pair{{"a", "01"}, {"b", "01"}}, []pair{{"a", "02"}}, "")))
		require.Equal(e.t, 4, e.commands(set("none", pair{"b", "03"}, pair{"a", "03"})), "refused")
		require.Equal(e.t, 6, e.commands(queueing(group(nil, []pair{{"a", "03"}}, ""))), "queued: TIME, and five as alone")
	})
}

// One of several masters runs one command more for each script that asks for its vote, also for details that take two
// fields.
func TestCostOfOneOfSeveralMasters(t *testing.T) {
	onServers(t, func(e *env) {
		e.loadAll()
		e.newMarker()
		long := writer("01")
		long.meta = strings.Repeat("m", 100)
		for i, holder := range []request{writer("01"), long} {
			require.Equal(e.t, 4, e.besideHours(votes.of(acquire(holder))))
			require.Equal(e.t, holder.details(), e.field(lockKey, "d")+e.field(lockKey, "e"))
			require.Equal(e.t, []int{2, 3}[i], e.commands(votes.of(release("01", 0))))
		}
		require.Equal(e.t, 5, e.besideHours(votes.of(acquire(reader("01")))))
		require.Equal(e.t, 4, e.commands(votes.of(release("01", 0))))
	})
}

func TestRenewalsShareTheirCost(t *testing.T) {
	onServers(t, func(e *env) {
		e.loadAll()
		for i, perLease := range []int{2, 3} { // and a PEXPIRE for each key of the first lease
			all := call{scripts.Renew, nil, []string{"0", fmt.Sprint(ttl), []string{"w", "r"}[i]}}
			for n := range 100 {
				c := acquire([]func(string) request{writer, reader}[i]("01"))
				c.keys = lockKeys(fmt.Sprint(i, "-", n))[:1]
				all.keys = append(all.keys, c.keys...)
				all.args = append(all.args, ulid("01"), fmt.Sprint(e.run(c)[1]))
			}
			e.run(all)                                    // a reader's first one also moves the time in its record
			cost := min(e.commands(all), e.commands(all)) // one of the two may carry the holds into another minute
			require.Equal(e.t, 1+100*perLease+i+1, cost)
			for _, status := range e.run(all)[1:] {
				require.EqualValues(e.t, 1, status)
			}
		}
	})
}

// A process refreshes all its waiters of a lock for the price of one.
func TestRefreshOfManyWaitersIsOneCommand(t *testing.T) {
	onServers(t, func(e *env) {
		e.loadAll()
		for _, holder := range []request{writer("01"), reader("01")} {
			e.flushAll()
			e.run(acquire(holder))
			holds := []string{}
			for _, c := range many(64, func(hold string) call { holds = append(holds, hold); return acquire(writer(hold)) }) {
				e.run(c)
			}
			require.LessOrEqual(e.t, e.commands(refresh(holds...)), 8)
			for i := range holds {
				require.EqualValues(e.t, 0, e.run(refresh(holds...))[3+3*i])
			}
		}
	})
}

// What a call costs does not depend on how many wait or read.
func TestCostDoesNotGrow(t *testing.T) {
	sizes := testredis.Few([]int{10, 100}, []int{10, 100, 1_000}) // BenchmarkGrowth goes to 10,000
	onServers(t, func(e *env) {
		e.loadAll()
		costs := map[string][]int{}
		note := func(what string, calls ...call) { costs[what] = append(costs[what], e.commands(calls...)) }
		for _, n := range sizes {
			e.flushAll()
			token := e.run(acquire(writer("01")))[1]
			e.all(many(n, func(hold string) call { return acquire(writer(hold).lasting(10 * ttl).waiting(10 * ttl)) }))
			note("queue", acquire(writer("02")))
			note("refused", tryAcquire(writer("03")))
			note("renew", renew("01", ttl, token))
			note("refresh", refresh("02"))
			note("leave the queue", release("02", 0))
			note("hand-off", release("01", 0))
			note("asked again", acquire(writer("1000000")))
			e.run(release("1000000", 0))
			e.pass(5 * ttl * time.Millisecond) // the second has expired
			note("expired", acquire(writer("04")))
		}
		for _, n := range []int{1, 100, 1_000} {
			e.flushAll()
			e.all(many(n, func(hold string) call { return acquire(reader(hold).lasting(10 * ttl)) }))
			e.run(acquire(reader("05")))
			note("one more reader", acquire(reader("06")))
			note("one reader less", release("06", 0))
			note("refused by readers", tryAcquire(writer("07")))
			note("queued behind readers", acquire(writer("08")))
			note("one reader less before a writer", release("05", 0))
		}
		for what, counts := range costs {
			// A key that gets the same expiry twice in one millisecond costs one command more.
			for _, count := range counts {
				require.InDelta(e.t, counts[0], count, 1, "%s: %v", what, counts)
			}
		}
	})
}

// all sends calls together.
func (e *env) all(calls []call) {
	e.t.Helper()
	for from := 0; from < len(calls); from += 500 {
		e.pipeline(calls[from:min(from+500, len(calls))])
	}
}

// A held lock and an idle one take little memory.
func TestBytesOfALock(t *testing.T) {
	onServers(t, func(e *env) {
		used := func() (sum int64) {
			for key := range e.dump() {
				n, err := e.do("MEMORY", "USAGE", key).AsInt64()
				require.NoError(e.t, err)
				sum += n
			}
			return sum
		}
		c := acquire(request{hold: "01", mode: "w", ttl: ttl, claim: claim, route: "p" + channel, meta: "host-7:1234"})
		e.run(c)
		require.LessOrEqual(e.t, used(), int64(400), "held")
		e.run(release("01", 0))
		require.LessOrEqual(e.t, used(), int64(200), "left behind")
	})
}
