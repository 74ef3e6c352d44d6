package redlock_test

import (
	"context"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testkit"
	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
)

func TestUncontendedAllocations(t *testing.T) {
	if testkit.RaceDetector {
		t.Skip("the race detector allocates")
	}
	for masters, most := range map[int]float64{3: 36, 5: 47} {
		var addrs []string
		for range masters {
			addrs = append(addrs, testredis.Start(t).Addr())
		}
		clients, err := redlock.Dial(addrs, rueidis.ClientOption{})
		require.NoError(t, err)
		locker, err := redlock.New(clients)
		require.NoError(t, err)
		// Where a master is late, two requests to it are one batch, which costs more. So the fewest of some runs count.
		fewest := most + 1
		for range 20 {
			fewest = min(fewest, testing.AllocsPerRun(100, func() { pairOnce(t, locker) }))
			if fewest <= most {
				break
			}
		}
		t.Logf("%d masters: %.0f allocations", masters, fewest)
		require.NoError(t, locker.Close())
		for _, c := range clients {
			c.Close()
		}
		require.LessOrEqual(t, fewest, most, "%d masters", masters)
	}
}

func pairOnce(t *testing.T, locker *rwlock.Locker) {
	lease, err := locker.Lock(context.Background(), "n")
	if err == nil {
		err = lease.Release(context.Background())
	}
	if err != nil {
		t.Fatal(err)
	}
}
