package scripts_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const ahead = 1_000_000 // us that a block may be ahead of the server's clock

// A block does not run ahead of the server's clock by more than a second, but for its first token.
func TestABlockIsBoundedByTheClock(t *testing.T) {
	everywhere(t, func(e *env) {
		for _, last := range []int64{ahead - 5_000, ahead - 1, ahead, ahead + 50_000_000} {
			const block = 1 << 40
			last += e.now().UnixMicro()
			e.setFields(lockKey, "t", last)
			reply := e.run(acquire(writer("01").shared(block)))
			require.Equal(e.t, last+1, reply[4])
			require.Equal(e.t, max(last+1, reply[3].(int64)+ahead), reply[1])
			e.run(release("01", 0))
		}
		e.flushAll()
		e.newMarker()
		v := e.ahead(100_000)
		reply := e.run(v.of(acquireByID(writer("01").shared(50))))
		require.Equal(e.t, []any{v.proposal + 49, v.proposal}, []any{reply[1], reply[4]}, "from the proposal on")
		require.Equal(e.t, fmt.Sprint(v.proposal+49), e.field(lockKey, "tw"))
		require.EqualValues(e.t, 1, e.run(v.of(raise("01", v.proposal+70)))[0], "a raise moves its end")
		yielded := e.run(v.of(yield("01", v.proposal+70)))
		require.Equal(e.t, []any{v.proposal + 120, v.proposal + 71}, []any{yielded[1], yielded[4]}, "a new block")
	})
}

// The block of a waiter is bounded in the same way, on both paths of a release that hands the lock on.
func TestABlockOfAWaiterIsBoundedByTheClock(t *testing.T) {
	everywhere(t, func(e *env) {
		e.subscribe(channel)
		waiter := acquire(writer("02").shared(1 << 40))
		for _, held := range []request{writer("01"), writer("01").by("a")} {
			e.run(acquire(held))
			e.run(waiter)
			e.setFields(lockKey, "t", e.now().UnixMicro()+ahead-5_000)
			us := e.run(release("01", 0))[1].(int64)
			granted := e.run(waiter)
			require.EqualValues(e.t, 1, granted[0])
			require.Equal(e.t, max(granted[4].(int64), us+ahead), granted[1])
			e.run(release("02", 0))
		}
	})
}

// Every shared hold that reads is told of the first writer who waits, and so is one that is let in before him.
func TestReadingSharedHoldsAreToldThatTheyAreWanted(t *testing.T) {
	everywhere(t, func(e *env) {
		messages := e.subscribe(channel)
		e.run(acquire(reader("01")))
		e.run(acquire(reader("02").shared(1)))
		token := e.run(acquire(reader("03").shared(1)))[1]
		require.EqualValues(e.t, 1, e.run(renew("03", ttl, token))[1])
		e.run(acquire(writer("04")))
		require.ElementsMatch(e.t, []string{ulid("02") + " wanted", ulid("03") + " wanted"}, e.heard(messages))
		require.EqualValues(e.t, 2, e.run(renew("03", ttl, token))[1])
		e.run(acquire(reader("05").shared(1)))
		e.run(acquire(reader("06")))
		e.run(acquire(writer("07")))
		require.Empty(e.t, e.heard(messages))
		for _, hold := range []string{"01", "02", "03"} {
			e.run(release(hold, 0))
		}
		require.Len(e.t, e.heard(messages), 1, "the hand-off")
		e.run(release("04", 0))
		heard := e.heard(messages)
		require.Len(e.t, heard, 3)
		require.Equal(e.t, ulid("05")+" wanted", heard[2], "after two hand-offs")
		for _, hold := range []string{"05", "06", "07"} {
			e.run(release(hold, 0))
		}
		e.pass(2 * ttl * time.Millisecond)
		e.run(refresh())
		e.onlyTokensStay()
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
			require.Equal(e.t, 4, e.commands(acquire(writer("01").shared(64))))
			require.Equal(e.t, 2, e.commands(release("01", 0)))
			require.Equal(e.t, 7, e.commands(acquire(reader("01").shared(1))), "one more for the first")
			require.Equal(e.t, 3, e.commands(release("01", 0)))
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
		for _, n := range []int{10, 100, 1_000} {
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
