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

	"github.com/seed74116694/fencelock/scripts"
)

func TestInspectShowsTheLockAndChangesNothing(t *testing.T) {
	everywhere(t, func(e *env) {
		free := e.run(inspect())
		require.Equal(e.t, []any{"", int64(0), []any{}, []any{}}, free[1:])
		require.Empty(e.t, e.dump())

		token := e.run(acquire(writer("01").by("a")))[1]
		e.run(join(reader("02").by("a").lasting(2 * ttl)))
		e.run(acquire(reader("03").listening(deaf)))
		e.run(acquire(writer("04")))
		before := e.repeatableState(e.dump())
		for _, keys := range [][]string{lockKeys("n"), lockKeys("n")[:1]} {
			reply := e.run(call{scripts.Inspect, keys, nil})
			require.Equal(e.t, []any{"w", token}, reply[1:3])
			holders, waiters := reply[3].([]any), reply[4].([]any)
			require.Len(e.t, holders, 2)
			for i, hold := range []string{"01", "02"} {
				h := holders[i].([]any)
				require.Equal(e.t, []any{ulid(hold), ulid("a"), "w", channel, int64(2)}, h[:5])
				require.InDelta(e.t, (i+1)*ttl, h[5], 10_000)
				require.InDelta(e.t, 0, h[6], 10_000)
				require.Equal(e.t, []any{token, "meta of it", int64(0)}, h[7:])
			}
			require.Len(e.t, waiters, 2)
			for i, want := range [][]any{{ulid("03"), ulid("03"), "r", channel}, {ulid("04"), ulid("04"), "w", channel}} {
				w := waiters[i].([]any)
				require.Equal(e.t, want, w[:4])
				require.InDelta(e.t, 0, w[4], 10_000)
				require.Equal(e.t, []any{"meta of it", "q", int64(i + 1)}, w[5:])
			}
		}
		require.Equal(e.t, before, e.repeatableState(e.dump()))

		e.run(acquire(writer("05").listening(deaf)))
		e.run(release("01", 0))
		e.run(release("02", 0)) // passes 03 over
		require.Equal(e.t, "p", e.run(inspect())[4].([]any)[0].([]any)[6])
		e.run(refresh("03"))
		require.Equal(e.t, "d", e.run(inspect())[4].([]any)[0].([]any)[6])
	})
}

// A hold that gave a grant back is shown with its owner, whether it waits again or has kept the lock.
func TestInspectNamesTheOwnerOfAHoldThatGaveWay(t *testing.T) {
	everywhere(t, func(e *env) {
		e.newMarker()
		for owner, want := range map[string][]any{
			"":   {ulid("05"), int64(1), int64(0)},
			"A":  {ulid("A"), int64(2), int64(0)}, // it has joined a hold of its own
			"+7": {ulid("05"), int64(1), int64(1)},
		} {
			token := e.run(votes.of(acquireByID(writer("05").by(owner))))[1].(int64)
			kept := e.run(votes.of(yield("05", token)))
			require.EqualValues(e.t, 1, kept[0], "nobody waits")
			if owner == "A" {
				e.run(votes.of(join(reader("06").by("A").lasting(2 * ttl))))
			}
			h := e.run(inspect())[3].([]any)[0].([]any)
			require.Equal(e.t, ulid("05"), h[0])
			require.Equal(e.t, want, []any{h[1], h[4], h[9]}, "owner, counter and cohort")
			e.run(votes.of(release("06", 0)))

			e.run(votes.of(acquireByID(writer("03"))))
			require.EqualValues(e.t, 0, e.run(votes.of(yield("05", kept[1].(int64))))[0])
			w := e.run(inspect())[4].([]any)[0].([]any)
			require.Equal(e.t, []any{ulid("05"), want[0]}, w[:2])
			e.run(votes.of(release("05", 0)))
			e.run(votes.of(release("03", 0)))
		}
	})
}

// What has expired is not shown, though nobody has purged it yet.
func TestInspectShowsNothingExpired(t *testing.T) {
	everywhere(t, func(e *env) {
		e.run(acquire(reader("01")))
		e.run(acquire(reader("02").lasting(4 * ttl)))
		e.run(acquire(writer("03")))
		e.run(acquire(writer("04").waiting(4 * ttl)))
		e.pass(2 * ttl * time.Millisecond)
		reply := e.run(inspect())
		require.Len(e.t, reply[3], 1)
		require.Equal(e.t, ulid("02"), reply[3].([]any)[0].([]any)[0])
		require.Len(e.t, reply[4], 1)
		require.Equal(e.t, ulid("04"), reply[4].([]any)[0].([]any)[0])
		e.run(release("02", 0))
		e.pass(4 * ttl * time.Millisecond)
		require.Equal(e.t, []any{"", []any{}, []any{}}, append(e.run(inspect())[1:2], e.run(inspect())[3:]...))
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
