package scripts_test

import (
	"strings"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
)

// A server that is out of memory refuses new locks, and still renews, refreshes, releases and hands off.
func TestFullMemoryKeepsWhoIsIn(t *testing.T) {
	onServers(t, func(b *bed) {
		const long = 60_000
		b.run(acquire("01", "A", "w", long, long, "a"))
		b.run(acquire("02", "B", "r", long, long, "a"))
		b.run(acquire("03", "C", "r", long, long, "a"))
		b.run(release("00", 0)) // every script is known before the memory is full
		b.run(renew("00", long))
		b.run(refresh("02", long))
		b.fillMemory()

		_, err := b.try(acquire("09", "Z", "w", long, long, "a"))
		e, ok := rueidis.IsRedisErr(err)
		require.True(b.t, ok, "memory is not full: %v", err)
		require.Contains(b.t, e.Error(), "OOM")
		require.NotContains(b.t, strings.Join(b.dump()[lockKeys("n")[0]], "\n"), "09=", "a refused acquire leaves nothing")

		for range 3 {
			require.EqualValues(b.t, 1, b.run(renew("01", long))[0])
		}
		require.EqualValues(b.t, 0, b.run(refresh("02", long, "03", long))[2])
		released := b.run(release("01", 0))
		require.EqualValues(b.t, 1, released[0])
		handed := b.run(refresh("02", long, "03", long))
		require.EqualValues(b.t, 1, handed[2])
		require.EqualValues(b.t, 1, handed[5])
		require.Greater(b.t, handed[6], handed[3], "a grant minted under pressure is newer as any")
		require.EqualValues(b.t, 1, b.run(renew("02", long))[0])
		require.EqualValues(b.t, 1, b.run(release("02", 0))[0])
		require.EqualValues(b.t, 1, b.run(release("03", long))[0], "also with a tombstone")
		require.EqualValues(b.t, 0, b.run(release("04", long))[0], "and for a hold that never came")
	}, "--maxmemory", "3mb", "--maxmemory-policy", "noeviction")
}

// fillMemory sets keys until the server refuses to.
func (b *bed) fillMemory() {
	b.t.Helper()
	for size := 1 << 20; size >= 16; size /= 2 {
		for i := 0; ; i++ {
			err := b.do("SET", strings.Join(texts([]any{"fill", size, i}), ":"), strings.Repeat("x", size)).Error()
			if err != nil {
				require.ErrorContains(b.t, err, "OOM")
				break
			}
			require.Less(b.t, i, 10_000, "the memory has no end")
		}
	}
}
