package scripts_test

import (
	"fmt"
	"regexp"
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
