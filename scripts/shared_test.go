package scripts_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testredis"
)

const ahead = 1_000_000 // us that a block may be ahead of the server's clock

// The block of a waiter is bounded in the same way, on both paths of a release that hands the lock on.
func TestABlockOfAWaiterIsBoundedByTheClock(t *testing.T) {
	everywhere(t, func(e *env) {
		e.subscribe(channel)
		waiter := acquire(writer("02").shared(1 << 40))
		for _, held := range []request{writer("01"), writer("01").by("a")} {
			e.run(acquire(held))
			e.run(waiter)
			e.setFields(lockKey, "w", counter(e.now().UnixMicro()+ahead-5_000)+"n")
			us := e.run(release("01", 0))[1].(int64)
			granted := e.run(waiter)
			require.EqualValues(e.t, 1, granted[0])
			require.Equal(e.t, max(granted[4].(int64), us+ahead), granted[1])
			e.run(release("02", 0))
		}
	})
}

// A hold of which only the member of a key is left keeps no other one from being told.
func TestAMemberWithoutARecordIsToldNothing(t *testing.T) {
	everywhere(t, func(e *env) {
		messages := e.subscribe(channel)
		e.run(acquire(reader("01").shared(1)))
		later := fmt.Sprint(e.now().Add(time.Hour).UnixMilli())
		require.NoError(e.t, e.do("ZADD", lockKeys("n")[1], later, ulid("02")).Error())
		e.run(acquire(writer("03")))
		require.Equal(e.t, []string{ulid("01") + " wanted"}, e.heard(messages))
	})
}

func TestASharedHoldCostsWhatAnyOtherDoes(t *testing.T) {
	onServers(t, func(e *env) {
		e.loadAll()
		for range 2 {
			require.LessOrEqual(e.t, e.commands(acquire(writer("01").shared(64))), 4)
			require.Equal(e.t, 2, e.commands(release("01", 0)))
			require.LessOrEqual(e.t, e.commands(acquire(reader("01").shared(1))), 7, "one more for the first")
			require.Equal(e.t, 4, e.commands(release("01", 0)))
		}
		e.run(acquire(writer("01")))
		plain := e.commands(acquire(writer("02"))) + e.commands(release("01", 0))
		e.run(release("02", 0))
		e.run(acquire(writer("01").shared(64)))
		shared := e.commands(acquire(writer("02").shared(64))) + e.commands(release("01", 0))
		require.InDelta(e.t, plain+1, shared, 1, "the message") // a PEXPIRE more within a millisecond
	})
}

// wanted returns the holds in these messages whose processes were told that somebody waits, each once.
func wanted(messages []string) (holds []string) {
	for _, m := range messages {
		if hold, ok := strings.CutSuffix(m, " wanted"); ok {
			holds = append(holds, hold)
		}
	}
	slices.Sort(holds)
	return slices.Compact(holds)
}

// goOn refreshes without holds for as long as a call has left something for the next one.
func (e *env) goOn() (calls int) {
	e.t.Helper()
	for e.run(refresh())[2].(int64) == 1 {
		calls++
		require.Less(e.t, calls, 100, "it has no end")
	}
	return calls
}

// sharedReaders are read holds of n processes, with as many others between them, and the ids that are told.
func sharedReaders(n int) (calls []call, ids []string) {
	calls = many(2*n, func(hold string) call {
		if hold[len(hold)-1]%2 == 1 {
			return acquire(reader(hold))
		}
		ids = append(ids, ulid(hold))
		return acquire(reader(hold).shared(1))
	})
	return calls, ids
}

// However many processes read, all of them hear of a writer who waits, and none has to wait for a timer: what one call
// leaves is done by the next at once.
func TestEverySharedHoldThatReadsIsWanted(t *testing.T) {
	everywhere(t, func(e *env) {
		messages := e.subscribe(channel)
		for _, n := range testredis.Few([]int{10, 1_000}, []int{10, 100, 1_000}) {
			e.flushAll()
			e.loadAll()
			readers, ids := sharedReaders(n)
			e.all(readers)
			reply := e.run(acquire(writer("01")))
			require.Equal(e.t, 2*n > 1_000, reply[2] == int64(1), "asks again at once: %v", reply)
			e.goOn()
			require.Equal(e.t, ids, wanted(e.heard(messages)))
			e.run(acquire(writer("02")))
			e.run(refresh("01", "02"))
			require.Empty(e.t, wanted(e.heard(messages)), "they have been told")
			e.run(release("01", 0))
			e.run(release("02", 0))
			e.run(acquire(writer("03")))
			e.goOn()
			require.Equal(e.t, ids, wanted(e.heard(messages)), "the next one after nobody waited")
		}
	})
}
