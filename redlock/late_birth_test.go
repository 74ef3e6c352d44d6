package redlock_test

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/scripts"
)

// A birth that was sent at the first start, and comes after the master has lost what it had counted since, does not let
// it vote at once.
func TestLateBirthIsAReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := testredis.NewMini(t)
		c := mini.Client(t)
		run := func(args ...string) (us int64) {
			call := c.B().Eval().Script(scripts.Source(scripts.Marker)).Numkeys(1).Key("p:master").Arg(args...).Build()
			reply, err := c.Do(t.Context(), call).ToArray()
			require.NoError(t, err)
			us, err = reply[0].AsInt64()
			require.NoError(t, err)
			return us
		}
		unmarked := run("look", "2", "rules", "", "", "", "10000", "", "", "")
		birth := []string{"birth", "2", "rules", "S", "0", "a b c", "10000", "", "", strconv.FormatInt(unmarked, 10)}
		run(birth...)
		require.Equal(t, "0", mini.Miniredis().HGet("p:master", "until"), "the first start: it votes")
		time.Sleep(6 * time.Second)
		mini.FlushAll()
		run(birth...)
		require.NotEqual(t, "0", mini.Miniredis().HGet("p:master", "until"), "it votes though it has lost its data")
	})
}
