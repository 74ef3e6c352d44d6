package redlock_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
)

// Counted on the masters: an acquisition that meets nobody is one message to each, whoever took the lock before, and
// also if nobody ever did.
func TestUncontendedAcquisitionIsOneRoundTrip(t *testing.T) {
	t.Run("few names", func(t *testing.T) { testFastPath(t, 7) })
	t.Run("fresh names", func(t *testing.T) { testFastPath(t, 300) })
}

func testFastPath(t *testing.T, names int) {
	const acquisitions = 300
	synctest.Test(t, func(t *testing.T) {
		s := newSet(t, 5)
		peers := s.crowd(4, 7)
		for _, p := range peers {
			p.warm(t)
		}
		rng := dice(7, diceWork, 0)
		fast, slowest := 0, time.Duration(0)
		for i := range acquisitions {
			time.Sleep(20 * time.Millisecond) // the last release has reached all masters
			s.reset()
			begun := time.Now()
			lease, err := peers[rng.IntN(len(peers))].Lock(t.Context(), fmt.Sprint("name-", i%names))
			require.NoError(t, err)
			slowest = max(slowest, time.Since(begun))
			time.Sleep(20 * time.Millisecond) // the slowest minority has been asked, too
			if fmt.Sprint(s.scripts()) == "[1 1 1 1 1]" {
				fast++
			}
			require.NoError(t, lease.Release(t.Context()))
		}
		t.Logf("%d of %d in one round trip, the slowest in %v", fast, acquisitions, slowest)
		require.GreaterOrEqual(t, fast, acquisitions*99/100)
	})
}

// The verdict falls with the quorum's last answer: the slower minority is not waited for.
func TestVerdictDoesNotWaitForTheSlowest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSet(t, 5)
		p := s.peer(0)
		p.warm(t)
		synctest.Wait() // for what the slower masters have yet to answer
		for i, link := range p.links {
			link.Delay(time.Duration(i+1) * 10 * time.Millisecond)
		}
		begun := time.Now()
		lease, err := p.Lock(t.Context(), "x")
		require.NoError(t, err)
		require.Equal(t, 2*30*time.Millisecond, time.Since(begun), "there and back to the third of five")
		begun = time.Now()
		require.NoError(t, lease.Release(t.Context()))
		require.Equal(t, 2*30*time.Millisecond, time.Since(begun))
	})
}

// On real servers, where no two messages leave in the same microsecond.
func TestUncontendedAcquisitionOfServersIsOneRoundTrip(t *testing.T) {
	const acquisitions = 500
	s := newSite(t)
	locker := s.locker(rwlock.WithTTL(10*time.Second), redlock.WithNodeTimeout(5*time.Second))
	section := func(name string) {
		lease, err := locker.Lock(t.Context(), name)
		require.NoError(t, err)
		require.NoError(t, lease.Release(t.Context()))
	}
	for range 10 {
		section("warm-up")
	}
	for _, server := range s.servers {
		server.ResetStats()
	}
	for i := range acquisitions {
		section(fmt.Sprint("name-", i))
	}
	for i, server := range s.servers {
		calls := server.Stats()["evalsha"].Calls
		require.LessOrEqual(t, calls, acquisitions*2*101/100, "an acquire and a release each on master %d", i)
	}
}
