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

// A write of a shared hold is granted a block: its first token is what any other grant would get, its last is the
// counter.
func TestASharedHoldsWriteIsGrantedABlock(t *testing.T) {
	everywhere(t, func(e *env) {
		reply := e.run(acquire(writer("01").shared(10)))
		us := reply[3].(int64)
		require.Equal(e.t, []any{int64(1), us + 9, int64(ttl), us, us}, reply)
		require.Equal(e.t, fmt.Sprint(us+9), e.field(lockKey, "t"))
		again := e.run(acquire(writer("01").shared(10)))
		require.Equal(e.t, []any{us + 9, us}, []any{again[1], again[4]}, "asked again")
		require.EqualValues(e.t, 1, e.run(renew("01", ttl, us+9))[1], "the last token names the grant")
		require.EqualValues(e.t, 0, e.run(renew("01", ttl, us))[1])
		e.run(release("01", 0))

		e.setFields(lockKey, "t", us+500_000) // ahead of the clock
		plain := e.run(acquire(writer("02")))
		require.Equal(e.t, []any{int64(1), us + 500_001}, plain[:2])
		require.Len(e.t, plain, 4)
		e.run(release("02", 0))
		one := e.run(acquire(writer("03").shared(1)))
		require.Equal(e.t, []any{us + 500_002, us + 500_002}, []any{one[1], one[4]}, "a block of one is no other grant")
		e.run(release("03", 0))
		read := e.run(acquire(reader("04").shared(10)))
		require.Equal(e.t, us+500_003, read[1], "readers share one token")
		require.Len(e.t, read, 4)
		e.run(release("04", 0))
		require.Empty(e.t, e.field(lockKey, "c"))
	})
}

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

// The message of a hand-off to a shared hold says where its block begins and how many wait behind it.
func TestAHandOffToASharedHoldTellsItsBlock(t *testing.T) {
	everywhere(t, func(e *env) {
		e.run(acquire(writer("01")))
		e.run(acquire(writer("02").shared(7)))
		e.run(acquire(writer("03")))
		e.run(acquire(writer("04")))
		messages := e.subscribe(channel)
		e.setFields(lockKey, "t", e.now().UnixMicro()+990_000) // else a busy machine's clock may be past it
		first := 1 + e.run(inspect())[2].(int64)
		us := e.run(release("01", 0))[1]
		message := fmt.Sprint(ulid("02"), " ", first+6, " ", us, " ", claim, " ", first, " 2")
		require.Equal(e.t, []string{message}, e.heard(messages))
		us = e.run(release("02", 0))[1]
		message = fmt.Sprint(ulid("03"), " ", first+7, " ", us, " ", claim)
		require.Equal(e.t, []string{message}, e.heard(messages), "any other is as ever")
	})
}

// The first who waits behind a shared hold is announced to its process, once; nobody else's process is told.
func TestASharedHoldIsToldThatItIsWanted(t *testing.T) {
	everywhere(t, func(e *env) {
		messages := e.subscribe(channel)
		wanted := func(hold string) []string { return []string{ulid(hold) + " wanted"} }
		e.run(acquire(writer("01").shared(7)))
		e.run(tryAcquire(writer("02")))
		require.Empty(e.t, e.heard(messages), "a single attempt does not wait")
		e.run(acquire(reader("03")))
		require.Equal(e.t, wanted("01"), e.heard(messages))
		e.run(acquire(writer("04")))
		e.run(acquire(reader("03")))
		require.Empty(e.t, e.heard(messages), "it has been told")
		e.run(release("03", 0))
		e.run(release("04", 0))
		e.run(acquire(writer("05")))
		require.Equal(e.t, wanted("01"), e.heard(messages), "the next first")
		e.run(release("05", 0))
		e.run(release("01", 0))

		e.run(acquire(writer("06")))
		e.run(acquire(writer("07").shared(1)))
		require.Empty(e.t, e.heard(messages), "a hold that is no shared hold's")
		e.run(release("07", 0))
		e.run(release("06", 0))

		token := e.run(acquire(writer("08").shared(7)))[1]
		require.EqualValues(e.t, 1, e.run(renew("08", ttl, token))[1])
		e.run(acquire(writer("09").listening("pnobody")))
		require.EqualValues(e.t, 2, e.run(renew("08", ttl, token))[1], "where the message was lost")
	})
}

// A waiter that was passed over and comes back is the first one that waits, if nothing waits by then.
func TestASharedHoldIsToldOfAWaiterThatComesBack(t *testing.T) {
	everywhere(t, func(e *env) {
		e.run(acquire(writer("01")))
		e.run(acquire(writer("02").listening(deaf)))
		e.run(acquire(writer("03").shared(7)))
		e.run(release("01", 0))
		messages := e.subscribe(channel)
		require.EqualValues(e.t, 0, e.run(refresh("02"))[3])
		require.Equal(e.t, []string{ulid("03") + " wanted"}, e.heard(messages))
		require.EqualValues(e.t, 0, e.run(refresh("02"))[3])
		require.Empty(e.t, e.heard(messages), "it has been told")
	})
}

// A shared hold that has upgraded is told as any other is.
func TestASharedHoldThatHasUpgradedIsToldThatItIsWanted(t *testing.T) {
	everywhere(t, func(e *env) {
		messages := e.subscribe(channel)
		e.run(acquire(reader("01").shared(7)))
		require.EqualValues(e.t, 1, answer(e, acquire(writer("02").shared(7).converting("01"))))
		e.run(release("01", 0))
		require.EqualValues(e.t, 0, answer(e, acquire(writer("03"))))
		require.Equal(e.t, []string{ulid("02") + " wanted"}, e.heard(messages))
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

// Of several masters an older hold passes younger waiters; it hears of them at once.
func TestASharedHoldThatPassesWaitersIsWanted(t *testing.T) {
	everywhere(t, func(e *env) {
		e.newMarker()
		messages := e.subscribe(channel)
		e.run(votes.of(acquireByID(reader("05"))))
		e.run(votes.of(acquireByID(writer("07"))))
		e.run(votes.of(acquireByID(reader("03").shared(1))))
		require.Equal(e.t, []string{ulid("03") + " wanted"}, e.heard(messages))
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

// Nor is one left out while others leave and renew between two calls.
func TestEverySharedHoldIsWantedWhileOthersLeave(t *testing.T) {
	everywhere(t, func(e *env) {
		e.loadAll()
		readers, ids := sharedReaders(900)
		e.all(readers)
		messages := e.subscribe(channel)
		e.run(acquire(writer("01")))
		told := wanted(e.heard(messages))
		require.Less(e.t, len(told), len(ids))
		require.NotEmpty(e.t, told)
		for i, id := range ids {
			hold := strings.TrimLeft(id, "0")
			switch {
			case slices.Contains(told, id) && i%2 == 0:
				e.run(release(hold, 0))
			case slices.Contains(told, id) || i%3 > 0:
			case i%2 == 0:
				e.run(release(hold, 0))
				told = append(told, id) // it has left
			default:
				token := strings.Fields(e.field(lockKey, id))[2]
				require.EqualValues(e.t, 2, e.run(renew(hold, ttl, token))[1])
				told = append(told, id) // the renewal said it
			}
		}
		e.goOn()
		told = append(told, wanted(e.heard(messages))...)
		slices.Sort(told)
		require.Equal(e.t, ids, slices.Compact(told))
	})
}

// Readers that are let in before a writer are told too, also those that more than one call has let in.
func TestSharedHoldsThatAreLetInBeforeAWriterAreWanted(t *testing.T) {
	everywhere(t, func(e *env) {
		messages := e.subscribe(channel)
		for _, n := range []int{3, 200} {
			e.flushAll()
			e.loadAll()
			e.run(acquire(writer("01")))
			var ids []string
			e.all(many(n, func(hold string) call {
				ids = append(ids, ulid(hold))
				return acquire(reader(hold).shared(1))
			}))
			e.run(acquire(writer("02")))
			e.run(release("01", 0))
			e.goOn()
			require.Equal(e.t, ids, wanted(e.heard(messages)), fmt.Sprint(n))
		}
	})
}
