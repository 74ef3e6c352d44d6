package redlock_test

import (
	"context"
	"flag"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/testkit"
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
func increase(t testing.TB, lockers []*rwlock.Locker, rounds int, settle func()) {
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
	inFakeTime(t, 5, func(w *world) {
		var lockers []*rwlock.Locker
		majorities(func(masters int) {
			p := w.ProcessAt(0)
			p.Section("warm-up")
			synctest.Wait()
			for i := range p.Links {
				if masters>>i&1 == 0 {
					p.CutOff(i)
				}
			}
			lockers = append(lockers, p.Locker)
		})
		increase(w, lockers, 500, synctest.Wait)
	})
}

// The same on real servers, with processes whose wall clocks stand at the beginning of time: only the counters of the
// masters are left to keep the order.
func TestTokensIncreaseOverChangingMajoritiesOfServers(t *testing.T) {
	t.Parallel()
	w, dead := testkit.Start(t, 5), testkit.Start(t, 2) // as many dead ones as a minority has
	for _, server := range dead.Servers {
		server.Kill()
	}
	var lockers []*rwlock.Locker
	majorities(func(masters int) {
		var addrs []string
		down := dead.Servers
		for i, server := range w.Servers {
			if masters>>i&1 == 0 {
				server, down = down[0], down[1:]
			}
			addrs = append(addrs, server.Addr())
		}
		timeless := testkit.NewWallClock(time.Until(time.Unix(0, 0)))
		p := dialled(w, addrs, timeless.Option())
		t.Cleanup(func() { require.NoError(t, p.Close()) })
		lockers = append(lockers, p.Locker)
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	lease, err := lockers[len(lockers)-1].Lock(ctx, "x") // a first start is one that sees them all
	require.NoError(t, err)
	require.NoError(t, lease.Release(ctx))
	increase(t, lockers, *adversaryRounds, func() {})
}
