package scripts_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

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

// cohorts are read holds of n processes, with as many others between them, and the ids that are told.
func cohorts(n int) (calls []call, ids []string) {
	calls = many(2*n, func(hold string) call {
		if hold[len(hold)-1]%2 == 1 {
			return acquire(reader(hold))
		}
		ids = append(ids, ulid(hold))
		return acquire(reader(hold).ofCohort(1))
	})
	return calls, ids
}

// However many processes read, all of them hear of a writer who waits, and none has to wait for a timer: what one call
// leaves is done by the next at once.
func TestEveryCohortThatReadsIsWanted(t *testing.T) {
	everywhere(t, func(e *env) {
		messages := e.subscribe(channel)
		for _, n := range []int{10, 100, 1_000} {
			e.flushAll()
			e.loadAll()
			readers, ids := cohorts(n)
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
func TestEveryCohortIsWantedWhileOthersLeave(t *testing.T) {
	everywhere(t, func(e *env) {
		e.loadAll()
		readers, ids := cohorts(900)
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
func TestCohortsThatAreLetInBeforeAWriterAreWanted(t *testing.T) {
	everywhere(t, func(e *env) {
		messages := e.subscribe(channel)
		for _, n := range []int{3, 200} {
			e.flushAll()
			e.loadAll()
			e.run(acquire(writer("01")))
			var ids []string
			e.all(many(n, func(hold string) call {
				ids = append(ids, ulid(hold))
				return acquire(reader(hold).ofCohort(1))
			}))
			e.run(acquire(writer("02")))
			e.run(release("01", 0))
			e.goOn()
			require.Equal(e.t, ids, wanted(e.heard(messages)), fmt.Sprint(n))
		}
	})
}
