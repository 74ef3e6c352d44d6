package redlock_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
)

// An acquisition that meets nobody is one message to each master, whoever took the lock before.
func TestUncontendedAcquisitionIsOneRoundTrip(t *testing.T) {
	t.Run("few names", func(t *testing.T) { testFastPath(t, 7) })
	t.Run("fresh names", func(t *testing.T) { testFastPath(t, 300) })
}

func testFastPath(t *testing.T, names int) {
	acquisitions := testredis.Few(40, 300)
	inFakeTime(t, 5, func(w *world) {
		peers := crowd(w, 4, 7)
		warmUp(peers...)
		rng := dice(7, diceWork, 0)
		fast, slowest := 0, time.Duration(0)
		for i := range acquisitions {
			time.Sleep(20 * time.Millisecond) // the last release has reached all masters
			w.ResetCalls()
			begun := time.Now()
			lease := expect.NoError(peers[rng.IntN(len(peers))].Lock(w.Ctx, fmt.Sprint("name-", i%names))).In(w)
			slowest = max(slowest, time.Since(begun))
			time.Sleep(20 * time.Millisecond) // the slowest minority has been asked, too
			if fmt.Sprint(w.ScriptCalls()) == "[1 1 1 1 1]" {
				fast++
			}
			w.Release(lease)
		}
		w.Logf("%d of %d in one round trip, the slowest in %v", fast, acquisitions, slowest)
		require.GreaterOrEqual(w, fast, acquisitions*99/100)
	})
}

// The verdict falls with the quorum's last answer: the slower minority is not waited for.
func TestVerdictDoesNotWaitForTheSlowest(t *testing.T) {
	inFakeTime(t, 5, func(w *world) {
		p := warmed(w.ProcessAt(0))
		synctest.Wait() // for what the slower masters have yet to answer
		for i, link := range p.Links {
			link.Delay(time.Duration(i+1) * 10 * time.Millisecond)
		}
		begun := time.Now()
		lease := p.Take("x", rwlock.Write)
		require.Equal(w, 2*30*time.Millisecond, time.Since(begun), "there and back to the third of five")
		begun = time.Now()
		w.Release(lease)
		require.Equal(w, 2*30*time.Millisecond, time.Since(begun))
	})
}

// Readers need no order among themselves: each gets in with one round of messages, however many read at once.
func TestReadersGetInWithOneRound(t *testing.T) {
	inFakeTime(t, 5, func(w *world) {
		peers := crowd(w, 8, 7) // a message takes a millisecond at least, and less than two
		warmUp(peers...)
		time.Sleep(time.Second)
		var work sync.WaitGroup
		for i, p := range peers {
			rng := dice(5, diceWork, i)
			work.Go(func() {
				for n := range testredis.Few(6, 16) {
					pause(w.Ctx, upTo(rng, 5*time.Millisecond))
					take := []func(context.Context, string, ...rwlock.LockOption) (*rwlock.Lease, error){p.RLock, p.TryRLock}[n%2]
					begun := time.Now()
					lease, err := take(w.Ctx, "shelf")
					if took := time.Since(begun); err != nil || took >= 4*time.Millisecond {
						w.Errorf("%v after %v", err, took)
						return
					}
					pause(w.Ctx, 2*time.Millisecond)
					w.Release(lease)
				}
			})
		}
		work.Wait()
	})
}

func TestUncontendedAllocations(t *testing.T) {
	if testkit.RaceDetector {
		t.Skip("the race detector allocates")
	}
	for masters, most := range map[int]float64{3: 29, 5: 38} {
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

// lockerOver starts a locker, whose masters may be slow to answer. end ends it before the end of the test.
func lockerOver(t *testing.T, servers []*testredis.Server) (end func(), locker *rwlock.Locker) {
	t.Helper()
	var addrs []string
	for _, s := range servers {
		addrs = append(addrs, s.Addr())
	}
	clients := expect.NoError(redlock.Dial(addrs, rueidis.ClientOption{})).In(t)
	opts := []rwlock.Option{testredis.Silent(), rwlock.WithTTL(time.Minute), redlock.WithNodeTimeout(20 * time.Second)}
	testkit.FoundLongAgo(t, clients, opts...)
	locker = expect.NoError(redlock.New(clients, opts...)).In(t)
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

// Each master runs one script to acquire and one to release, and these are the commands inside them. Each script has
// run on every master before the next is sent: the release to a master that has not answered the acquire costs a
// tombstone more.
func TestUncontendedCommandsOfAMaster(t *testing.T) {
	const pairs, most = 20, 6
	servers := []*testredis.Server{testredis.Start(t), testredis.Start(t), testredis.Start(t)}
	_, locker := lockerOver(t, servers)
	lease := expect.NoError(locker.Lock(t.Context(), "n")).In(t)
	for _, s := range servers { // a request that has not left would be withdrawn by the release
		await(t, func() bool { return s.Stats()["pexpire"].Calls > 0 })
	}
	require.NoError(t, lease.Release(t.Context()))
	for _, s := range servers {
		await(t, func() bool { return s.Stats()["hset"].Calls > 1 })
		s.ResetStats()
	}
	allHaveRun := func(want int) {
		for _, s := range servers {
			await(t, func() bool {
				scripts, _ := scriptsOf(s)
				return scripts == want
			})
		}
	}
	for pair := range pairs {
		lease := expect.NoError(locker.Lock(t.Context(), "n")).In(t)
		allHaveRun(2*pair + 1)
		require.NoError(t, lease.Release(t.Context()))
		allHaveRun(2*pair + 2)
	}
	for _, s := range servers {
		_, inside := scriptsOf(s)
		require.Contains(t, []int{most * pairs, most*pairs + 1}, inside, "and PEXPIRE, every hundred seconds")
	}
}

func await(t *testing.T, done func() bool) {
	t.Helper()
	require.Eventually(t, done, testkit.Patience, time.Millisecond)
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
