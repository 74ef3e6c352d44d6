package redlock_test

import (
	"context"
	"strings"
	"sync"
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
		var servers []*testredis.Server
		for range masters {
			servers = append(servers, testredis.Start(t))
		}
		end, locker := lockerOver(t, servers)
		// Where a master is late, two requests to it are one batch, which costs more. So the fewest of some runs count.
		fewest := most + 1
		for range 20 {
			fewest = min(fewest, testing.AllocsPerRun(100, func() { pairOnce(t, locker) }))
			if fewest <= most {
				break
			}
		}
		t.Logf("%d masters: %.0f allocations", masters, fewest)
		end()
		require.LessOrEqual(t, fewest, most, "%d masters", masters)
	}
}

// lockerOver starts a locker. end ends it before the end of the test.
func lockerOver(t *testing.T, servers []*testredis.Server) (end func(), locker *rwlock.Locker) {
	t.Helper()
	var addrs []string
	for _, s := range servers {
		addrs = append(addrs, s.Addr())
	}
	clients, err := redlock.Dial(addrs, rueidis.ClientOption{})
	require.NoError(t, err)
	locker, err = redlock.New(clients)
	require.NoError(t, err)
	end = sync.OnceFunc(func() {
		require.NoError(t, locker.Close())
		for _, c := range clients {
			c.Close()
		}
	})
	t.Cleanup(end)
	return end, locker
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

// Each master runs one script to acquire and one to release, and these are the commands inside them. They are those of
// masters that keep pace: the release to a master that has not answered the acquire costs a tombstone more, so the
// cheapest of several rounds counts.
func TestUncontendedCommandsOfAMaster(t *testing.T) {
	const rounds, pairs, most = 200, 5, 7
	servers := []*testredis.Server{testredis.Start(t), testredis.Start(t), testredis.Start(t)}
	_, locker := lockerOver(t, servers)
	cheapest := map[*testredis.Server]float64{}
	for range rounds {
		for _, s := range servers {
			s.ResetStats()
		}
		for range pairs {
			pairOnce(t, locker)
		}
		for _, s := range servers {
			if scripts, inside := scriptsOf(s); scripts == 2*pairs { // nothing of another round
				perPair := float64(inside) / pairs
				if best, ok := cheapest[s]; !ok || perPair < best {
					cheapest[s] = perPair
				}
			}
		}
	}
	for _, s := range servers {
		t.Logf("%.2f commands a pair", cheapest[s])
		require.LessOrEqual(t, cheapest[s], float64(most))
		require.Greater(t, cheapest[s], float64(most)/2, "they are counted")
	}
}

// scriptsOf returns how many scripts a server has run, and the commands inside them.
func scriptsOf(s *testredis.Server) (scripts, inside int) {
	for name, stat := range s.Stats() {
		name, _, _ := strings.Cut(name, "|")
		switch name {
		case "evalsha", "eval":
			scripts += stat.Calls
		case "ping", "info", "config", "hello", "client", "script", "subscribe": // of connections, whenever they begin
		default:
			inside += stat.Calls
		}
	}
	return scripts, inside
}
