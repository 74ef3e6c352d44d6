package scripts_test

import (
	"strings"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
)

// A server that is out of memory refuses new locks, and still renews, refreshes, releases and hands off.
func TestFullMemoryKeepsWhoIsIn(t *testing.T) {
	onServers(t, func(e *env) {
		token := e.run(acquire(writer("01")))[1]
		e.run(acquire(reader("02")))
		e.run(acquire(reader("03")))
		e.run(acquire(writer("04").listening(deaf)))
		e.run(acquire(writer("05")))
		e.run(release("00", 0)) // every script is known before the memory is full
		e.run(renew("00", ttl, 1))
		e.run(refresh("02"))
		e.fillMemory()

		for _, refused := range []call{acquire(writer("09")), acquire(reader("09"))} {
			_, err := e.try(refused)
			refusal, ok := rueidis.IsRedisErr(err)
			require.True(e.t, ok, "memory is not full: %v", err)
			require.Contains(e.t, refusal.Error(), "OOM")
		}
		require.NotContains(e.t, strings.Join(e.dump()[lockKey], "\n"), "09=", "a refused acquire leaves nothing")

		for range 3 {
			require.EqualValues(e.t, 2, e.run(renew("01", ttl, token))[1])
		}
		require.EqualValues(e.t, 0, e.run(refresh("02", "03"))[3])
		require.EqualValues(e.t, 1, e.run(release("01", 0))[0])
		handed := e.run(refresh("02", "03"))
		require.EqualValues(e.t, 1, handed[3])
		require.EqualValues(e.t, 1, handed[6])
		require.Greater(e.t, handed[7], handed[4], "a grant minted under pressure is newer as any")
		require.EqualValues(e.t, 2, e.run(renew("02", ttl, handed[4]))[1])
		require.EqualValues(e.t, 1, e.run(release("02", 0))[0])
		require.EqualValues(e.t, 1, e.run(releaseAll("03", ttl))[0], "also with a tombstone, and past a dead waiter")
		require.EqualValues(e.t, 1, e.run(refresh("05"))[3])
		require.EqualValues(e.t, 0, e.run(refresh("04"))[3], "the dead one comes back to its place")
		require.EqualValues(e.t, 0, e.run(release("07", ttl))[0], "and for a hold that never came")
		require.EqualValues(e.t, 1, e.run(release("05", 0))[0])
		require.EqualValues(e.t, 1, e.run(release("04", 0))[0])
		_, err := e.try(on("m", "release", ulid("01"), ttl, 0))
		require.NoError(e.t, err, "and of a lock that never was")
	}, "--maxmemory", "3mb", "--maxmemory-policy", "noeviction")
}

// fillMemory sets keys until the server refuses to.
func (e *env) fillMemory() {
	e.t.Helper()
	for size := 1 << 20; size >= 16; size /= 2 {
		for i := 0; ; i++ {
			err := e.do("SET", strings.Join(texts([]any{"fill", size, i}), ":"), strings.Repeat("x", size)).Error()
			if err != nil {
				require.ErrorContains(e.t, err, "OOM")
				break
			}
			require.Less(e.t, i, 10_000, "the memory has no end")
		}
	}
}
