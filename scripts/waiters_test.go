package scripts_test

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

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

// One that was passed over and refreshes when the lock is free has it at once.
func TestDeafWaiterIsGrantedByItsRefresh(t *testing.T) {
	everywhere(t, func(e *env) {
		for i, again := range []call{refresh("02"), acquire(writer("02").listening(deaf))} {
			e.run(acquire(writer("01")))
			e.run(acquire(writer("02").listening(deaf)))
			e.run(release("01", 0))
			reply := e.run(again)
			at := []int{3, 0}[i]
			require.EqualValues(e.t, 1, reply[at])
			require.EqualValues(e.t, claim, reply[at+1+[]int{1, 1}[i]], "for the claim")
			e.run(release("02", 0))
		}
	})
}

// A process that listens elsewhere than before is told of the grant there.
func TestRefreshTellsWhereTheProcessListensNow(t *testing.T) {
	everywhere(t, func(e *env) {
		e.run(acquire(writer("01")))
		e.run(acquire(writer("02").listening(deaf)))
		e.run(acquire(writer("03")))
		e.run(refreshBy("p"+channel, "02"))
		messages := e.listen(channel, false)
		e.run(release("01", 0))
		require.Contains(e.t, <-messages, ulid("02")+" ")
		require.Equal(e.t, "w "+strconv.Itoa(claim)+" - p"+channel+" meta of it", e.field(lockKey, "d")+e.field(lockKey, "e"))
	})
}

// Where the count says nothing, or the message is refused, the waiter is granted the lock.
func TestWaiterIsGrantedWhereTheCountSaysNothing(t *testing.T) {
	everywhere(t, func(e *env) {
		routes := []string{"b" + channel, "bnobody"}
		if e.mini != nil {
			routes = append(routes, "snobody") // miniredis does not know SPUBLISH
		}
		for _, route := range routes {
			e.run(acquire(writer("01")))
			e.run(acquire(writer("02").listening(route)))
			e.run(release("01", 0))
			require.Equal(e.t, ulid("02"), e.field(lockKey, "w")[:26], route)
			e.run(release("02", 0))
		}
	})
}

func TestShardedHandOff(t *testing.T) {
	onServers(t, func(e *env) {
		e.run(acquire(writer("01")))
		e.run(acquire(writer("02").listening("s{n}nobody")))
		e.run(acquire(writer("03").listening("s{n}")))
		messages := e.listen("{n}", true)
		e.run(release("01", 0))
		require.Contains(e.t, <-messages, ulid("03")+" ")
		require.Equal(e.t, "1", e.members("aside"), "the count is known")
	})
}

// Readers enter together up to the next writer; the writer enters when the last of them has left or expired.
func TestReadersEnterUpToTheNextWriter(t *testing.T) {
	everywhere(t, func(e *env) {
		e.run(acquire(writer("01")))
		for _, r := range []request{reader("02"), reader("03").listening(deaf), reader("04"), writer("05"), reader("06")} {
			e.run(acquire(r))
		}
		e.run(release("01", 0))
		require.Equal(e.t, "2", e.members("holds"))
		reply := e.run(refresh("02", "03", "04", "05", "06"))
		status := []any{reply[3], reply[6], reply[9], reply[12], reply[15]}
		require.Equal(e.t, []any{int64(1), int64(1), int64(1), int64(0), int64(0)}, status, "03 comes back to its place")
		e.run(release("02", 0))
		e.run(release("03", 0))
		e.pass(claim * time.Millisecond)
		require.EqualValues(e.t, 1, e.run(refresh("05"))[3])
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

// Dead waiters do not pile up behind one who holds the lock for days: whoever waits there drops them.
func TestDeadWaitersDropOutBehindAWriter(t *testing.T) {
	everywhere(t, func(e *env) {
		e.run(acquire(writer("01").lasting(10 * ttl)))
		for i := range 10 {
			e.run(acquire(reader(fmt.Sprint("1", i))))
		}
		e.pass(claim * time.Millisecond)
		e.run(acquire(writer("02")))
		require.EqualValues(e.t, 0, e.run(refresh("02"))[3])
		require.Equal(e.t, "1", e.members("queue"))
	})
}

// Readers who have died do not pile up while only readers come.
func TestDeadReadersDoNotPileUp(t *testing.T) {
	everywhere(t, func(e *env) {
		for i := range 200 {
			require.EqualValues(e.t, 1, e.run(acquire(reader(fmt.Sprint(1000 + i))))[0])
			e.pass(ttl * time.Millisecond)
		}
		n, err := e.do("ZCARD", lockKeys("n")[1]).AsInt64()
		require.NoError(e.t, err)
		require.LessOrEqual(e.t, n, int64(64))
	})
}

// One call releases many holds of a client: those that wait, and one that was handed the lock meanwhile, which goes on
// to the next who waits. What is gone already is left alone.
func TestReleaseOfManyHolds(t *testing.T) {
	everywhere(t, func(e *env) {
		all := releaseMany("11", "12", "99", "13", "14")
		e.run(acquire(writer("01")))
		for _, hold := range []string{"11", "12", "13", "20", "14", "21"} {
			e.run(acquire(writer(hold)))
		}
		e.run(release("01", 0)) // 11 has it
		reply := e.run(all)
		require.EqualValues(e.t, 1, reply[0])
		require.EqualValues(e.t, 1, e.run(refresh("20"))[3])
		require.Len(e.t, e.run(inspect())[4], 1)
		require.EqualValues(e.t, 0, e.run(all)[0], "again")
		require.EqualValues(e.t, 1, e.run(refresh("20"))[3])
		e.run(release("20", 0))
		e.run(release("21", 0))
		e.onlyTokensStay()
	})
}

// A single attempt is not refused for holds and waiters that are dead, up to a bound on the work of one call, which is
// greater than the bound of other calls.
func TestASingleAttemptIsNotRefusedForWhatIsDead(t *testing.T) {
	// A crowd waits behind a writer.
	waiting := func(route string, ms int) func(e *env, n int) {
		return func(e *env, n int) {
			e.run(acquire(writer("01").lasting(ms)))
			for i := range n {
				e.run(acquire(writer(fmt.Sprint(1000 + i)).listening(route)))
			}
			e.pass(time.Duration(ms) * time.Millisecond)
		}
	}
	for name, die := range map[string]func(e *env, n int){
		"readers": func(e *env, n int) {
			for i := range n {
				e.run(acquire(reader(fmt.Sprint(1000 + i))))
			}
			require.EqualValues(e.t, 2, e.run(tryAcquire(writer("02")))[0])
			e.pass(ttl * time.Millisecond)
		},
		"waiters whose leases have ended": waiting("b"+channel, claim),
		"waiters without a subscriber":    waiting(deaf, claim/2),
	} {
		test := func(n int) func(e *env) {
			return func(e *env) {
				die(e, n)
				require.EqualValues(e.t, 1, e.run(tryAcquire(writer("03")))[0])
				e.run(release("03", 0))
				e.pass(claim * time.Millisecond)
				for more := int64(1); more == 1; {
					more = e.run(refresh())[2].(int64)
				}
				e.onlyTokensStay()
			}
		}
		for _, n := range []int{100, 1000} {
			t.Run(fmt.Sprint(n, " ", name), func(t *testing.T) { everywhere(t, test(n)) })
		}
		// More take so long there, on a slow machine, that leases end before all of them wait.
		t.Run("300 "+name+" in Lua 5.4", func(t *testing.T) { inLua54(t, test(300)) })
	}
}

// What a single attempt removes is bounded as well.
func TestASingleAttemptRemovesABoundedNumberOfDeadWaiters(t *testing.T) {
	everywhere(t, func(e *env) {
		const most = 1024
		e.run(acquire(writer("01")))
		askMany(e, most+1, func(hold string) request { return writer(hold).waiting(1) })
		e.pass(ttl * time.Millisecond)
		require.EqualValues(e.t, 2, e.run(tryAcquire(writer("02")))[0])
		require.EqualValues(e.t, 1, e.run(tryAcquire(writer("03")))[0])
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
