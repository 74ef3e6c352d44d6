package rwlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// A message of a hand-off may overtake the answer that the hold is queued. Two readers of a process are granted the
// lock at once while that answer is late for the second: it is not to sleep until its next refresh, in whatever
// deployment.
func TestAMessageThatOvertakesTheAnswer(t *testing.T) {
	for name, mode := range map[string]rueidis.ClientMode{
		"standalone": rueidis.ClientModeStandalone,
		"sentinel":   rueidis.ClientModeSentinel,
		"cluster":    rueidis.ClientModeCluster,
	} {
		for _, late := range []time.Duration{5 * time.Millisecond, 30 * time.Millisecond} {
			t.Run(name+", "+late.String()+" late", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { overtaken(t, mode, late) })
			})
		}
	}
}

func overtaken(t *testing.T, mode rueidis.ClientMode, late time.Duration) {
	mini := testredis.NewMini(t)
	holder := lockerOf(t, mini.Client(t))
	link := mini.NewLink()
	waiter := lockerOf(t, newFailingOver(t, mode, link))
	granted := make(chan time.Time, 2)
	read := func() {
		lease, err := waiter.RLock(context.Background(), "n")
		require.NoError(t, err)
		granted <- time.Now()
		time.Sleep(time.Minute)
		require.NoError(t, lease.Release(context.Background()))
	}
	for round := range 3 { // first nobody listens yet
		held, err := holder.Lock(t.Context(), "n")
		require.NoError(t, err)
		go read()
		synctest.Wait()
		time.Sleep(100 * time.Millisecond)
		link.DelayNextReply(testredis.Named("EVALSHA"), late)
		go read()
		synctest.Wait()
		require.NoError(t, held.Release(t.Context()))
		begun := time.Now()
		for range 2 {
			took := (<-granted).Sub(begun)
			require.True(t, round == 0 || took <= late, "it took %v", took)
		}
		time.Sleep(2 * time.Minute)
	}
}

// lockerOf is closed when the test ends.
func lockerOf(t testing.TB, client rueidis.Client, opts ...rwlock.Option) *rwlock.Locker {
	locker, err := rwlock.New(client, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, locker.Close()) })
	return locker
}
