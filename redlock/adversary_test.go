package redlock_test

import (
	"context"
	"flag"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/settings"
	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
)

var adversaryRounds = flag.Int("redlock.majorities", 500,
	"how many acquisitions over changing majorities real servers see; the full count is 100000")

// majorities yields every majority of five masters, as a bit set: of three, of four and of all.
func majorities(yield func(masters int)) {
	for set := range 1 << 5 {
		count := 0
		for i := range 5 {
			count += set >> i & 1
		}
		if count >= 3 {
			yield(set)
		}
	}
}

// increase takes and gives back one lock again and again, each time by a locker drawn at random, and checks that each
// token is greater than all before it.
func increase(t *testing.T, lockers []*rwlock.Locker, rounds int, settle func()) {
	require.Len(t, lockers, 10+5+1)
	rng := rand.New(rand.NewPCG(5, 0))
	var last fencing.Token
	begun := time.Now()
	for i := range rounds {
		lease, err := lockers[rng.IntN(len(lockers))].Lock(t.Context(), "x")
		require.NoError(t, err)
		require.Greater(t, lease.Token(), last, "acquisition %d", i)
		last = lease.Token()
		require.NoError(t, lease.Release(t.Context()))
		settle()
	}
	t.Logf("%d acquisitions in %v", rounds, time.Since(begun))
}

// Whatever majority an acquisition reaches, its token is greater than all before it, though no process has seen what
// another was given and the clock is of no help: time stands still.
func TestTokensIncreaseOverChangingMajorities(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSet(t, 5)
		var lockers []*rwlock.Locker
		majorities(func(masters int) {
			p := s.peer(0)
			p.warm(t)
			synctest.Wait()
			for i, link := range p.links {
				if masters>>i&1 == 0 {
					link.Refuse()
					link.Cut()
				}
			}
			lockers = append(lockers, p.Locker)
		})
		increase(t, lockers, 500, synctest.Wait)
	})
}

// The same on real servers, with processes whose wall clocks stand at the beginning of time: only the counters of the
// masters are left to keep the order.
func TestTokensIncreaseOverChangingMajoritiesOfServers(t *testing.T) {
	t.Parallel()
	var servers []*testredis.Server
	for range 5 {
		servers = append(servers, testredis.Start(t))
	}
	var dead []*testredis.Server // as many as a minority has
	for range 2 {
		dead = append(dead, testredis.Start(t))
		dead[len(dead)-1].Kill()
	}
	var lockers []*rwlock.Locker
	majorities(func(masters int) {
		var addrs []string
		down := 0
		for i, server := range servers {
			if masters>>i&1 == 0 {
				server = dead[down]
				down++
			}
			addrs = append(addrs, server.Addr())
		}
		clients, err := redlock.Dial(addrs, rueidis.ClientOption{})
		require.NoError(t, err)
		locker, err := redlock.New(clients, timeless(), testredis.Patience())
		require.NoError(t, err)
		t.Cleanup(func() {
			require.NoError(t, locker.Close())
			for _, c := range clients {
				c.Close()
			}
		})
		lockers = append(lockers, locker)
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	lease, err := lockers[len(lockers)-1].Lock(ctx, "x") // a first start is one that sees them all
	require.NoError(t, err)
	require.NoError(t, lease.Release(ctx))
	increase(t, lockers, *adversaryRounds, func() {})
}

// timeless gives a process a wall clock that begins in 1970.
func timeless() rwlock.Option {
	return settings.LockerOption(func(l *settings.Locker) {
		start := time.Now()
		l.Clock = clock.Clock(func() (time.Duration, time.Time) {
			passed := time.Since(start)
			return passed, time.Unix(0, 0).Add(passed)
		})
	})
}
