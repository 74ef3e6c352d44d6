package rwlock_test

import (
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testkit"
	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// A release that the server refuses for good is told as that, by the error and in the log: nothing goes on. One whose
// refusal passes goes on in the background.
func TestAReleaseThatIsRefusedForGoodIsNotPending(t *testing.T) {
	for refusal, forGood := range map[string]bool{
		"NOPERM this user has no permissions to run the 'evalsha' command": true,
		"READONLY You can't write against a read only replica.":            true,
		"LOADING Redis is loading the dataset in memory":                   false,
	} {
		t.Run(refusal, func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				var j testkit.Log
				p := w.Process(j.Option())
				lease := p.Take("n", rwlock.Write)
				w.Mini.Miniredis().SetError(refusal)
				err := lease.Release(w.Ctx)
				w.Mini.Miniredis().SetError("")
				require.ErrorContains(w, err, refusal)
				require.NoError(w, p.Close()) // the log is complete
				text := j.String()
				requireTold(w.T, err, text, forGood)
			})
		})
	}
}

// The same on a real server, whose user loses the right to run scripts.
func TestAReleaseByAUserWithoutTheRightIsNotPending(t *testing.T) {
	testredis.Require(t)
	server := testredis.Start(t)
	commandOn(t, server, aclLine(t, aclOne)...)
	client, err := dial(t, server.Addr(), rueidis.ClientOption{Username: "locks", Password: "secret"})
	require.NoError(t, err)
	var j testkit.Log
	l, err := rwlock.New(client, rwlock.WithTTL(time.Minute), j.Option())
	require.NoError(t, err)
	lease, err := l.Lock(t.Context(), "n")
	require.NoError(t, err)
	commandOn(t, server, "ACL", "SETUSER", "locks", "-evalsha", "-eval")
	err = lease.Release(t.Context())
	require.ErrorContains(t, err, "NOPERM")
	require.NoError(t, l.Close())
	text := j.String()
	requireTold(t, err, text, true)
}

// requireTold compares what is told of a release that is not confirmed with whether it goes on.
func requireTold(t *testing.T, err error, log string, forGood bool) {
	t.Helper()
	require.ErrorIs(t, err, rwlock.ErrNoQuorum)
	require.ErrorContains(t, err, `lock "n"`)
	require.Equal(t, !forGood, rwlock.Indeterminate(err))
	for _, text := range []string{err.Error(), log} {
		if forGood {
			require.Contains(t, text, "refused")
			require.Contains(t, text, "ends with its TTL")
			require.NotContains(t, text, "in the background")
		} else {
			require.Contains(t, text, "in the background")
			require.NotContains(t, text, "ends with its TTL")
		}
	}
}
