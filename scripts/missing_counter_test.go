package scripts_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Field w may be missing beside records: before the first grant, or since an operator has deleted it. A writer sees the
// records.
func TestRecordsWithoutACounter(t *testing.T) {
	onServers(t, func(e *env) {
		for name, of := range map[string]struct {
			before []call
			want   int64 // of a writer that does not wait
		}{
			"reader":          {[]call{acquire(reader("01"))}, 2},
			"shared reader":   {[]call{acquire(reader("01").shared(9))}, 2},
			"joined":          {[]call{acquire(writer("09").by("a")), join(writer("01").by("a"))}, 2},
			"waiter":          {[]call{acquire(writer("09")), acquire(writer("01"))}, 2}, // which is granted then
			"over before all": {[]call{release("02", ttl)}, 3},
		} {
			for kind, w := range map[string]request{
				"plain": writer("02"), "named": writer("02").by("b"), "shared": writer("02").shared(9),
			} {
				e.flushAll()
				for _, c := range of.before {
					e.run(c)
				}
				require.NoError(e.t, e.do("HDEL", lockKey, "w").Error())
				require.Equal(e.t, of.want, answer(e, tryAcquire(w)), "%s, %s", name, kind)
			}
		}
	})
}

// The counter of a named owner is right, although the fast path has taken back what it had written.
func TestCounterOfAnOwnerWithoutACounterOfTheLock(t *testing.T) {
	onServers(t, func(e *env) {
		e.run(acquire(writer("01").by("a")))
		require.NoError(e.t, e.do("HDEL", lockKey, "w").Error())
		require.EqualValues(e.t, 1, answer(e, acquire(writer("02").by("a"))))
		reply := e.run(join(writer("03").by("a")))
		require.EqualValues(e.t, 1, reply[0])
		require.EqualValues(e.t, 2, reply[4], "two holds")
	})
}
