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
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		out, err := exec.CommandContext(ctx, cli, "-p", strconv.Itoa(e.server.Port()),
			"--eval", "inspect.lua", "fencelock:{or ders}").CombinedOutput()
		require.NoError(t, err, string(out))
		for _, shown := range []string{"\nr\n", fmt.Sprint(token), ulid("01"), ulid("02"), ulid("03"), "meta of it"} {
			require.Contains(t, string(out), shown)
		}
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

func askMany(e *env, n int, mode func(hold string) request) {
	for i := range n {
		e.run(acquire(mode(fmt.Sprint(1000 + i))))
	}
}

// What one call does is bounded; it says that there is more, and a refresh without holds goes on.
func TestCallsAreBounded(t *testing.T) {
	everywhere(t, func(e *env) {
		e.run(acquire(writer("01")))
		askMany(e, 200, reader)
		require.EqualValues(e.t, 1, e.run(release("01", 0))[2])
		require.Equal(e.t, "64", e.members("holds"), "grants")
		require.EqualValues(e.t, 1, e.run(tryAcquire(writer("02")))[2], "wake")
		require.Equal(e.t, "128", e.members("holds"))
		require.Equal(e.t, 1, e.goOn())
		require.Equal(e.t, "200", e.members("holds"))

		e.pass(ttl * time.Millisecond)
		refused := e.run(acquire(writer("03")))
		require.Equal(e.t, []any{int64(0), int64(0), int64(1)}, refused[:3], "expired holds are left")
		require.Equal(e.t, "136", e.members("holds"), "purged")
		require.Equal(e.t, 2, e.goOn())
		require.Equal(e.t, ulid("03"), e.field(lockKey, "w")[29:55])

		askMany(e, 200, func(hold string) request { return reader(hold).waiting(1) })
		e.pass(time.Millisecond)
		require.EqualValues(e.t, 1, e.run(release("03", 0))[2])
		require.Equal(e.t, "136", e.members("queue"), "dropped")
		require.Equal(e.t, 2, e.goOn())

		e.run(acquire(writer("04")))
		askMany(e, 200, func(hold string) request { return reader(hold).listening(deaf) })
		require.EqualValues(e.t, 1, e.run(release("04", 0))[2])
		require.Equal(e.t, "64", e.members("aside"), "passed over")
		require.Equal(e.t, 2, e.goOn())
		require.Equal(e.t, "200", e.members("aside"))
		e.pass(claim * time.Millisecond)
		require.Equal(e.t, 3, e.goOn())
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
